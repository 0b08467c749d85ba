//! The template of a pod, as the API server and the kubelet will see it.

use std::collections::HashSet;

use k8s_openapi::{
    api::core::v1::{PodSpec, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    Fault, Faults, Path, annotations,
    basic::{check_between, check_not_negative, check_one_of, check_required},
    containers, dns, names, quantities, scheduling, security, volumes,
};
use crate::{DIJobSpec, Role};

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
/// <https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/>
const CLASSES: [(&str, i32); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];
/// All annotations together, in bytes.
const MAX_ANNOTATIONS: usize = 262_144;
const MAX_SECONDS: i64 = i32::MAX as i64;

/// Whose pod a template is for.
#[derive(Clone, Copy)]
pub(super) struct For<'a> {
    pub(super) role: Role,
    /// Gives it its volumes and its class; nothing for aggregators, whose template is that of many jobs.
    pub(super) job: Option<&'a DIJobSpec>,
}

/// The pod of a role.
pub(super) fn check(
    template: &PodTemplateSpec,
    field: &Path<'_>,
    whose: For<'_>,
    faults: &mut Faults,
) {
    if let Some(metadata) = &template.metadata {
        check_metadata(metadata, &field.at("metadata"), faults);
    }
    let none = PodSpec::default();
    let pod = template.spec.as_ref().unwrap_or(&none);
    annotations::check(template, pod, field, faults);
    let field = field.at("spec");
    let own = pod.volumes.as_deref().unwrap_or_default();
    volumes::check(own, Some(pod), &field, faults);
    containers::check(pod, whose, &field, faults);
    quantities::check_pod(pod, &field, faults);
    quantities::check_overhead(pod, &field, faults);
    check_claims(pod, &field, faults);
    check_pod(pod, whose, &field, faults);
    security::check_pod(pod, &field, faults);
    scheduling::check(pod, &field, faults);
    dns::check(pod, &field, faults);
}

/// Labels and annotations.
pub(super) fn check_metadata(metadata: &ObjectMeta, field: &Path<'_>, faults: &mut Faults) {
    let labels = field.at("labels");
    for (key, value) in metadata.labels.iter().flatten() {
        names::check_qualified_name(key, &labels, faults);
        names::check_label_value(value, &labels, faults);
    }
    let annotations = field.at("annotations");
    let mut size = 0;
    for (key, value) in metadata.annotations.iter().flatten() {
        names::check_qualified_name(&key.to_lowercase(), &annotations, faults);
        size += key.len() + value.len();
    }
    if size > MAX_ANNOTATIONS {
        faults.push(Fault::too_long(annotations, MAX_ANNOTATIONS));
    }
}

/// It is left out with an empty class where the job's comes in.
fn check_preemption(pod: &PodSpec, whose: For<'_>, field: &Path<'_>, faults: &mut Faults) {
    let policy = pod.preemption_policy.as_deref();
    let policies = ["PreemptLowerPriority", "Never"];
    check_one_of(policy, &policies, field, faults);
    let own_class = pod.priority_class_name.as_deref().unwrap_or_default();
    let is_left_out = |job: &DIJobSpec| own_class.is_empty() && !job.priority_class_name.is_empty();
    if policy == Some("") && !whose.job.is_some_and(is_left_out) {
        let what = "PreemptLowerPriority or Never; leave it out for that of the class";
        faults.push(Fault::required(field, what));
    }
}

/// Claims of the pod, which its containers name.
fn check_claims(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    let mut seen = HashSet::new();
    for (i, claim) in pod.resource_claims.iter().flatten().enumerate() {
        let field = field.item("resourceClaims", i);
        let name = field.at("name");
        names::check_label_name(&claim.name, &name, faults);
        names::check_unique(&mut seen, &claim.name, &name, faults);
        let own = claim.resource_claim_name.as_deref();
        let template = claim.resource_claim_template_name.as_deref();
        for (name, object) in [
            ("resourceClaimName", own),
            ("resourceClaimTemplateName", template),
        ] {
            if let Some(object) = object {
                names::check_subdomain(object, &field.at(name), faults);
            }
        }
        let why = match (own, template) {
            (None, None) => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            (Some(_), Some(_)) => {
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            }
            _ => continue,
        };
        faults.push(Fault::invalid(field, "", why));
    }
}

/// Of the classes that every cluster has, the values are known.
fn check_class(pod: &PodSpec, class: &str, field: &Path<'_>, faults: &mut Faults) {
    let Some((_, value)) = CLASSES.iter().find(|(name, _)| *name == class) else {
        return;
    };
    let place = field.at("priority");
    if let Some(priority) = pod.priority.filter(|priority| priority != value) {
        let why = format_args!("must be {value}, that of {class}; leave it out");
        faults.push(Fault::invalid(place, priority, why));
    }
    if pod.preemption_policy.as_deref() == Some("Never") {
        let why = format_args!("must be that of {class}, PreemptLowerPriority; leave it out");
        faults.push(Fault::invalid(field.at("preemptionPolicy"), "Never", why));
    }
}

fn check_pod(pod: &PodSpec, whose: For<'_>, field: &Path<'_>, faults: &mut Faults) {
    let path = |name| field.at(name);
    if pod
        .ephemeral_containers
        .as_ref()
        .is_some_and(|c| !c.is_empty())
    {
        let why = "ephemeral containers not allowed in pod template";
        faults.push(Fault::forbidden(path("ephemeralContainers"), why));
    }
    let policy = pod.restart_policy.as_deref();
    check_one_of(policy, &RESTART_POLICIES, &path("restartPolicy"), faults);
    check_preemption(pod, whose, &path("preemptionPolicy"), faults);
    let seconds = pod.termination_grace_period_seconds;
    check_not_negative(seconds, &path("terminationGracePeriodSeconds"), faults);
    let seconds = pod.active_deadline_seconds;
    check_between(
        seconds,
        (1, MAX_SECONDS),
        &path("activeDeadlineSeconds"),
        faults,
    );
    // With its class it may be the right one, as in what was copied from a pod; where the job's comes in, it is left out.
    let own_class = pod.priority_class_name.as_deref().unwrap_or_default();
    let has_none = |job: &DIJobSpec| own_class.is_empty() && job.priority_class_name.is_empty();
    if pod.priority.is_some_and(|priority| priority != 0) && whose.job.is_some_and(has_none) {
        let why = "the API server computes it, and refuses pods with another; leave it out, and use priorityClassName";
        faults.push(Fault::forbidden(path("priority"), why));
    }
    check_class(pod, own_class, field, faults);
    for (name, object) in [
        ("nodeName", &pod.node_name),
        ("priorityClassName", &pod.priority_class_name),
        ("serviceAccountName", &pod.service_account_name),
    ] {
        names::check_object_name(object.as_deref(), &path(name), faults);
    }
    if let Some(class) = &pod.runtime_class_name {
        names::check_subdomain(class, &path("runtimeClassName"), faults);
    }
    // The old spelling counts where the new one says nothing.
    if pod
        .service_account_name
        .as_deref()
        .unwrap_or_default()
        .is_empty()
    {
        let account = pod.service_account.as_deref();
        names::check_object_name(account, &path("serviceAccount"), faults);
    }
    if let Some(os) = &pod.os {
        let field = path("os");
        let field = field.at("name");
        if check_required(&os.name, &field, "cannot be empty", faults) {
            check_one_of(Some(&os.name), &["linux", "windows"], &field, faults);
        }
    }
    if pod.share_process_namespace == Some(true) && pod.host_pid == Some(true) {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        faults.push(Fault::invalid(path("shareProcessNamespace"), true, why));
    }
    for (i, gate) in pod.readiness_gates.iter().flatten().enumerate() {
        let field = field.item("readinessGates", i);
        let field = field.at("conditionType");
        names::check_qualified_name(&gate.condition_type, &field, faults);
    }
}
