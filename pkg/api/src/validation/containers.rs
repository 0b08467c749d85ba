//! The containers of a pod.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{
    Container, ContainerRestartRule, PodSpec, ResourceClaim, ResourceRequirements,
};

use super::{
    Fault, Faults, Path,
    basic::{check_one_of, check_optional_one_of, check_required},
    env, handlers,
    image::is_image,
    mounts::{self, Volumes},
    names, ports, quantities, security,
    template::For,
};
use crate::names::MAIN_CONTAINER;

/// When the image of a container, or of a volume, is fetched.
pub(super) const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
/// What a change of its resources does to a container.
const RESIZES: [&str; 2] = ["NotRequired", "RestartContainer"];
const MAX_RESTART_RULES: usize = 20;
/// Of one rule.
const MAX_EXIT_CODES: usize = 255;

/// Init containers and the others.
pub(super) fn check(pod: &PodSpec, whose: For<'_>, field: &Path<'_>, faults: &mut Faults) {
    check_main(&pod.containers, field, faults);
    let inits = pod.init_containers.as_deref().unwrap_or_default();
    // The builder gives this one to a template that has none.
    let policy = pod.restart_policy.as_deref().unwrap_or_default();
    let is_never = ["", "Never"].contains(&policy);
    let volumes = Volumes::of(pod, whose);
    let mut seen = HashSet::new();
    for (list, kind) in [(&*pod.containers, "containers"), (inits, "initContainers")] {
        for (i, container) in list.iter().enumerate() {
            let path = field.item(kind, i);
            let name = path.at("name");
            names::check_label_name(&container.name, &name, faults);
            names::check_unique(&mut seen, &container.name, &name, faults);
            check_image(container, &path, faults);
            handlers::check(container, pod, kind == "initContainers", &path, faults);
            check_process(container, &path, faults);
            check_restart_rules(container, &path, faults);
            // A sidecar is restarted in any pod.
            let is_never = is_never && kind == "containers";
            check_resizes(container, is_never, &path, faults);
            env::check(container, pod, &path, faults);
            ports::check(container, &path, faults);
            mounts::check(container, &volumes, whose.role, &path, faults);
            security::check_container(container, pod, (field, &path), faults);
            if let Some(resources) = &container.resources {
                let field = path.at("resources");
                quantities::check_requirements(resources, &field, faults);
                check_claims(resources, pod, &field, faults);
            }
        }
    }
    ports::check_pod(pod, whose.role, field, faults);
}

fn check_main(containers: &[Container], field: &Path<'_>, faults: &mut Faults) {
    if containers.iter().any(|c| c.name == MAIN_CONTAINER) {
        return;
    }
    let found: Vec<_> = containers.iter().map(|c| c.name.as_str()).collect();
    let found = if found.is_empty() {
        "there are no containers".to_owned()
    } else {
        format!("found {}", found.join(", "))
    };
    faults.push(Fault::required(
        field.at("containers"),
        format_args!("one container must be named {MAIN_CONTAINER}, the main one; {found}"),
    ));
}

/// How the container is run.
fn check_process(container: &Container, field: &Path<'_>, faults: &mut Faults) {
    let policy = container.restart_policy.as_deref();
    let policies = ["Always", "Never", "OnFailure"];
    check_optional_one_of(policy, &policies, &field.at("restartPolicy"), faults);
    let folder = container.working_dir.as_deref().unwrap_or_default();
    // Windows has drives.
    if !folder.is_empty() && !folder.starts_with('/') && !folder.contains(['\\', ':']) {
        let why = "must be an absolute path";
        faults.push(Fault::invalid(field.at("workingDir"), folder, why));
    }
}

/// By which exit codes the container is started again.
fn check_restart_rules(container: &Container, field: &Path<'_>, faults: &mut Faults) {
    let rules = container.restart_policy_rules.as_deref();
    let rules = rules.unwrap_or_default();
    if rules.is_empty() {
        return;
    }
    let policy = container.restart_policy.as_deref().unwrap_or_default();
    let what = "must specify restartPolicy when restart rules are used";
    check_required(policy, &field.at("restartPolicy"), what, faults);
    check_count(
        rules.len(),
        MAX_RESTART_RULES,
        &field.at("restartPolicyRules"),
        faults,
    );
    for (i, rule) in rules.iter().enumerate() {
        check_restart_rule(rule, &field.item("restartPolicyRules", i), faults);
    }
}

fn check_restart_rule(rule: &ContainerRestartRule, field: &Path<'_>, faults: &mut Faults) {
    let (action, actions) = (rule.action.as_str(), ["Restart", "RestartAllContainers"]);
    if !actions.contains(&action) {
        faults.push(Fault::not_supported(field.at("action"), action, &actions));
    }
    let field = field.at("exitCodes");
    let Some(codes) = &rule.exit_codes else {
        faults.push(Fault::required(field, "must be specified"));
        return;
    };
    let (operator, operators) = (codes.operator.as_str(), ["In", "NotIn"]);
    if !operators.contains(&operator) {
        let place = field.at("operator");
        faults.push(Fault::not_supported(place, operator, &operators));
    }
    let count = codes.values.as_ref().map_or(0, Vec::len);
    check_count(count, MAX_EXIT_CODES, &field.at("values"), faults);
}

fn check_count(count: usize, most: usize, field: &Path<'_>, faults: &mut Faults) {
    if count > most {
        let why = format_args!("must have at most {most} items");
        faults.push(Fault::too_many(field, Some(count), why));
    }
}

/// What a change of its resources does: where nothing is started again it cannot be a restart.
fn check_resizes(container: &Container, is_never: bool, field: &Path<'_>, faults: &mut Faults) {
    let mut seen = HashSet::new();
    for (i, policy) in container.resize_policy.iter().flatten().enumerate() {
        let field = field.item("resizePolicy", i);
        let name = field.at("resourceName");
        if check_required(&policy.resource_name, &name, "cpu or memory", faults) {
            let resources = ["cpu", "memory"];
            check_one_of(Some(&policy.resource_name), &resources, &name, faults);
        }
        names::check_unique(&mut seen, &policy.resource_name, &name, faults);
        let place = field.at("restartPolicy");
        let restart = policy.restart_policy.as_str();
        if !RESIZES.contains(&restart) {
            faults.push(Fault::not_supported(place, restart, &RESIZES));
        } else if is_never && restart != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never', as it is where the template leaves it out";
            faults.push(Fault::invalid(place, restart, why));
        }
    }
}

/// Claims of a container are those of its pod.
fn check_claims(
    resources: &ResourceRequirements,
    pod: &PodSpec,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let claims = resources.claims.as_deref().unwrap_or_default();
    for (i, claim) in claims.iter().enumerate() {
        let field = field.item("claims", i);
        let request = claim.request.as_deref();
        names::check_optional_label_name(request, &field.at("request"), faults);
        let field = field.at("name");
        check_overlap(claim, &claims[..i], &field, faults);
        let mut known = pod.resource_claims.iter().flatten();
        if check_required(&claim.name, &field, "the name of a claim", faults)
            && !known.any(|of_pod| of_pod.name == claim.name)
        {
            faults.push(Fault::not_found(field, claim.name.as_str()));
        }
    }
}

/// Several requests of one claim may be named, but none twice, and none beside the whole.
fn check_overlap(
    claim: &ResourceClaim,
    earlier: &[ResourceClaim],
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let request = claim.request.as_deref().unwrap_or_default();
    let same = earlier.iter().filter(|other| other.name == claim.name);
    let mut of_same = same.map(|other| other.request.as_deref().unwrap_or_default());
    let overlap = of_same.find(|other| request.is_empty() || other.is_empty() || *other == request);
    if let Some(other) = overlap.filter(|_| !claim.name.is_empty()) {
        let is_request = !request.is_empty() && !other.is_empty();
        let both = format!("{}/{request}", claim.name);
        let twice = if is_request { &both } else { &claim.name };
        faults.push(Fault::duplicate(field, twice.as_str()));
    }
}

fn check_image(container: &Container, field: &Path<'_>, faults: &mut Faults) {
    let image = container.image.as_deref().unwrap_or_default();
    let place = field.at("image");
    if image.is_empty() {
        faults.push(Fault::required(place, "the image that the container runs"));
    } else if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        faults.push(Fault::invalid(place, image, why));
    } else if !is_image(image) {
        let why = "must be [registry[:port]/]name[:tag][@digest], its name in lower case";
        faults.push(Fault::invalid(place, image, why));
    }
    let pull = container.image_pull_policy.as_deref();
    check_one_of(pull, &PULL_POLICIES, &field.at("imagePullPolicy"), faults);
    let policy = container.termination_message_policy.as_deref();
    let policies = ["FallbackToLogsOnError", "File"];
    check_one_of(
        policy,
        &policies,
        &field.at("terminationMessagePolicy"),
        faults,
    );
}
