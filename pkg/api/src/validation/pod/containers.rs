//! The containers of a pod.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{
    Container, ContainerRestartRule, PodSpec, ResourceClaim, ResourceRequirements,
};

use super::{
    env, handlers,
    image::{PULL_POLICIES, is_image_reference},
    mounts::{self, Volumes},
    ports, quantities, security,
    template_context::TemplateContext,
};
use crate::{
    names::MAIN_CONTAINER,
    validation::{
        fault::{Fault, Faults},
        names,
        path::Path,
        value_checks::{check_one_of, check_optional_one_of, check_required},
    },
};

/// Restart policies of an in-place resize.
const RESIZE_POLICIES: [&str; 2] = ["NotRequired", "RestartContainer"];
const MAX_RESTART_RULES: usize = 20;
/// Maximum number of exit codes of one restart rule.
const MAX_EXIT_CODES: usize = 255;

/// Checks init containers and containers.
pub(super) fn check_containers(
    pod: &PodSpec,
    context: TemplateContext<'_>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    check_main_container(&pod.containers, field, faults);
    let inits = pod.init_containers.as_deref().unwrap_or_default();
    // The pod builder sets Never if the template has no restart policy.
    let policy = pod.restart_policy.as_deref().unwrap_or_default();
    let is_never = ["", "Never"].contains(&policy);
    let volumes = Volumes::from_pod(pod, context);
    let mut seen = HashSet::new();
    for (list, kind) in [(&*pod.containers, "containers"), (inits, "initContainers")] {
        for (i, container) in list.iter().enumerate() {
            let path = field.child(kind).index(i);
            let name = path.child("name");
            names::check_label_name(&container.name, &name, faults);
            names::check_unique(&mut seen, &container.name, &name, faults);
            check_image(container, &path, faults);
            handlers::check_handlers(container, pod, kind == "initContainers", &path, faults);
            check_process(container, &path, faults);
            check_restart_rules(container, &path, faults);
            // Sidecars are restarted with any restart policy of the pod.
            let is_never = is_never && kind == "containers";
            check_resize_policies(container, is_never, &path, faults);
            env::check_variables(container, pod, &path, faults);
            ports::check_container_ports(container, &path, faults);
            mounts::check_mounts(container, &volumes, context.role, &path, faults);
            security::check_container_context(container, pod, (field, &path), faults);
            if let Some(resources) = &container.resources {
                let field = path.child("resources");
                quantities::check_requirements(resources, &field, faults);
                check_claims(resources, pod, &field, faults);
            }
        }
    }
    ports::check_pod_ports(pod, context.role, field, faults);
}

fn check_main_container(containers: &[Container], field: &Path<'_>, faults: &mut Faults) {
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
        field.child("containers"),
        format_args!("one container must be named {MAIN_CONTAINER} (the main container); {found}"),
    ));
}

/// Checks restart policy and working directory.
fn check_process(container: &Container, field: &Path<'_>, faults: &mut Faults) {
    let policy = container.restart_policy.as_deref();
    let policies = ["Always", "Never", "OnFailure"];
    check_optional_one_of(policy, &policies, &field.child("restartPolicy"), faults);
    let folder = container.working_dir.as_deref().unwrap_or_default();
    // Windows paths contain a backslash or a drive.
    if !folder.is_empty() && !folder.starts_with('/') && !folder.contains(['\\', ':']) {
        let why = "must be an absolute path";
        faults.push(Fault::invalid(field.child("workingDir"), folder, why));
    }
}

/// Checks the exit codes with which the container is restarted.
fn check_restart_rules(container: &Container, field: &Path<'_>, faults: &mut Faults) {
    let rules = container.restart_policy_rules.as_deref();
    let rules = rules.unwrap_or_default();
    if rules.is_empty() {
        return;
    }
    let policy = container.restart_policy.as_deref().unwrap_or_default();
    let message = "must specify restartPolicy when restart rules are used";
    check_required(policy, &field.child("restartPolicy"), message, faults);
    check_count(
        rules.len(),
        MAX_RESTART_RULES,
        &field.child("restartPolicyRules"),
        faults,
    );
    for (i, rule) in rules.iter().enumerate() {
        check_restart_rule(rule, &field.child("restartPolicyRules").index(i), faults);
    }
}

fn check_restart_rule(rule: &ContainerRestartRule, field: &Path<'_>, faults: &mut Faults) {
    let (action, actions) = (rule.action.as_str(), ["Restart", "RestartAllContainers"]);
    if !actions.contains(&action) {
        faults.push(Fault::not_supported(
            field.child("action"),
            action,
            &actions,
        ));
    }
    let field = field.child("exitCodes");
    let Some(codes) = &rule.exit_codes else {
        faults.push(Fault::required(field, "must be specified"));
        return;
    };
    let (operator, operators) = (codes.operator.as_str(), ["In", "NotIn"]);
    if !operators.contains(&operator) {
        let place = field.child("operator");
        faults.push(Fault::not_supported(place, operator, &operators));
    }
    let count = codes.values.as_ref().map_or(0, Vec::len);
    check_count(count, MAX_EXIT_CODES, &field.child("values"), faults);
}

fn check_count(count: usize, max: usize, field: &Path<'_>, faults: &mut Faults) {
    if count > max {
        let why = format_args!("must have at most {max} items");
        faults.push(Fault::too_many(field, Some(count), why));
    }
}

/// Checks resize policies: without restarts, a resize cannot restart the container.
fn check_resize_policies(
    container: &Container,
    is_never: bool,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let mut seen = HashSet::new();
    for (i, policy) in container.resize_policy.iter().flatten().enumerate() {
        let field = field.child("resizePolicy").index(i);
        let name = field.child("resourceName");
        if check_required(&policy.resource_name, &name, "cpu or memory", faults) {
            let resources = ["cpu", "memory"];
            check_one_of(Some(&policy.resource_name), &resources, &name, faults);
        }
        names::check_unique(&mut seen, &policy.resource_name, &name, faults);
        let place = field.child("restartPolicy");
        let restart = policy.restart_policy.as_str();
        if !RESIZE_POLICIES.contains(&restart) {
            faults.push(Fault::not_supported(place, restart, &RESIZE_POLICIES));
        } else if is_never && restart != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never', as it is where the template leaves it out";
            faults.push(Fault::invalid(place, restart, why));
        }
    }
}

/// Checks that the claims of a container are claims of its pod.
fn check_claims(
    resources: &ResourceRequirements,
    pod: &PodSpec,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let claims = resources.claims.as_deref().unwrap_or_default();
    for (i, claim) in claims.iter().enumerate() {
        let field = field.child("claims").index(i);
        let request = claim.request.as_deref();
        names::check_optional_label_name(request, &field.child("request"), faults);
        let field = field.child("name");
        check_overlap(claim, &claims[..i], &field, faults);
        let mut known = pod.resource_claims.iter().flatten();
        if check_required(&claim.name, &field, "the name of a claim", faults)
            && !known.any(|known| known.name == claim.name)
        {
            faults.push(Fault::not_found(field, claim.name.as_str()));
        }
    }
}

/// Checks that no request of a claim is used twice, and none together with the whole claim.
fn check_overlap(
    claim: &ResourceClaim,
    earlier: &[ResourceClaim],
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let request = claim.request.as_deref().unwrap_or_default();
    let same = earlier.iter().filter(|other| other.name == claim.name);
    let mut requests = same.map(|other| other.request.as_deref().unwrap_or_default());
    let overlap =
        requests.find(|other| request.is_empty() || other.is_empty() || *other == request);
    if let Some(other) = overlap.filter(|_| !claim.name.is_empty()) {
        let is_request = !request.is_empty() && !other.is_empty();
        let both = format!("{}/{request}", claim.name);
        let twice = if is_request { &both } else { &claim.name };
        faults.push(Fault::duplicate(field, twice.as_str()));
    }
}

fn check_image(container: &Container, field: &Path<'_>, faults: &mut Faults) {
    let image = container.image.as_deref().unwrap_or_default();
    let place = field.child("image");
    if image.is_empty() {
        faults.push(Fault::required(place, "the image that the container runs"));
    } else if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        faults.push(Fault::invalid(place, image, why));
    } else if !is_image_reference(image) {
        let why = "must be [registry[:port]/]name[:tag][@digest], its name in lower case";
        faults.push(Fault::invalid(place, image, why));
    }
    let pull = container.image_pull_policy.as_deref();
    check_one_of(
        pull,
        &PULL_POLICIES,
        &field.child("imagePullPolicy"),
        faults,
    );
    let policy = container.termination_message_policy.as_deref();
    let policies = ["FallbackToLogsOnError", "File"];
    check_one_of(
        policy,
        &policies,
        &field.child("terminationMessagePolicy"),
        faults,
    );
}
