//! Pod templates, with the rules of the API server and the kubelet.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};

use super::{
    annotations, containers, dns, metadata::check_metadata, quantities, scheduling, security,
    template_context::TemplateContext, volumes,
};
use crate::{
    dijob::DIJobSpec,
    validation::{
        fault::{Fault, Faults},
        names,
        path::Path,
        value_checks::{check_between, check_not_negative, check_one_of, check_required},
    },
};

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
/// PriorityClasses of every cluster and their values.
/// <https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/>
const SYSTEM_CLASSES: [(&str, i32); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];
const MAX_SECONDS: i64 = i32::MAX as i64;

/// Checks the pod template of a role.
pub(crate) fn check_template(
    template: &PodTemplateSpec,
    field: &Path<'_>,
    context: TemplateContext<'_>,
    faults: &mut Faults,
) {
    if let Some(metadata) = &template.metadata {
        check_metadata(metadata, &field.child("metadata"), faults);
    }
    let empty = PodSpec::default();
    let pod = template.spec.as_ref().unwrap_or(&empty);
    annotations::check_annotations(template, pod, field, faults);
    let field = field.child("spec");
    let own = pod.volumes.as_deref().unwrap_or_default();
    volumes::check_volumes(own, Some(pod), &field, faults);
    containers::check_containers(pod, context, &field, faults);
    quantities::check_pod_resources(pod, &field, faults);
    quantities::check_overhead(pod, &field, faults);
    check_claims(pod, &field, faults);
    check_pod(pod, context, &field, faults);
    security::check_pod_context(pod, &field, faults);
    scheduling::check_scheduling(pod, &field, faults);
    dns::check_dns(pod, &field, faults);
}

/// Checks the preemption policy. The pod builder drops it together with an empty class if the job
/// has a class.
fn check_preemption(
    pod: &PodSpec,
    context: TemplateContext<'_>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let policy = pod.preemption_policy.as_deref();
    let policies = ["PreemptLowerPriority", "Never"];
    check_one_of(policy, &policies, field, faults);
    let own_class = pod.priority_class_name.as_deref().unwrap_or_default();
    let is_dropped = |job: &DIJobSpec| own_class.is_empty() && !job.priority_class_name.is_empty();
    if policy == Some("") && !context.job.is_some_and(is_dropped) {
        let values = "PreemptLowerPriority or Never; omit it for that of the class";
        faults.push(Fault::required(field, values));
    }
}

/// Checks the resource claims of the pod.
fn check_claims(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    let mut seen = HashSet::new();
    for (i, claim) in pod.resource_claims.iter().flatten().enumerate() {
        let field = field.child("resourceClaims").index(i);
        let name = field.child("name");
        names::check_label_name(&claim.name, &name, faults);
        names::check_unique(&mut seen, &claim.name, &name, faults);
        let own = claim.resource_claim_name.as_deref();
        let template = claim.resource_claim_template_name.as_deref();
        for (name, object) in [
            ("resourceClaimName", own),
            ("resourceClaimTemplateName", template),
        ] {
            if let Some(object) = object {
                names::check_subdomain(object, &field.child(name), faults);
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

/// Checks the priority of pods with a system PriorityClass, because their values are fixed.
fn check_class(pod: &PodSpec, class: &str, field: &Path<'_>, faults: &mut Faults) {
    let Some((_, value)) = SYSTEM_CLASSES.iter().find(|(name, _)| *name == class) else {
        return;
    };
    let place = field.child("priority");
    if let Some(priority) = pod.priority.filter(|priority| priority != value) {
        let why = format_args!("must be {value}, that of {class}; omit it");
        faults.push(Fault::invalid(place, priority, why));
    }
    if pod.preemption_policy.as_deref() == Some("Never") {
        let why = format_args!("must be that of {class}, PreemptLowerPriority; omit it");
        faults.push(Fault::invalid(
            field.child("preemptionPolicy"),
            "Never",
            why,
        ));
    }
}

fn check_pod(pod: &PodSpec, context: TemplateContext<'_>, field: &Path<'_>, faults: &mut Faults) {
    let path = |name| field.child(name);
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
    check_preemption(pod, context, &path("preemptionPolicy"), faults);
    let seconds = pod.termination_grace_period_seconds;
    check_not_negative(seconds, &path("terminationGracePeriodSeconds"), faults);
    let seconds = pod.active_deadline_seconds;
    check_between(
        seconds,
        (1, MAX_SECONDS),
        &path("activeDeadlineSeconds"),
        faults,
    );
    // Together with a class the priority may be right, as in a copied pod. If the job has a class,
    // the pod builder drops the priority.
    let own_class = pod.priority_class_name.as_deref().unwrap_or_default();
    let has_no_class = |job: &DIJobSpec| own_class.is_empty() && job.priority_class_name.is_empty();
    if pod.priority.is_some_and(|priority| priority != 0) && context.job.is_some_and(has_no_class) {
        let why = "the API server computes it and rejects pods with another value; omit it, and use priorityClassName";
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
    // The API server reads the deprecated field if `serviceAccountName` is empty.
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
        let field = field.child("name");
        if check_required(&os.name, &field, "cannot be empty", faults) {
            check_one_of(Some(&os.name), &["linux", "windows"], &field, faults);
        }
    }
    if pod.share_process_namespace == Some(true) && pod.host_pid == Some(true) {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        faults.push(Fault::invalid(path("shareProcessNamespace"), true, why));
    }
    for (i, gate) in pod.readiness_gates.iter().flatten().enumerate() {
        let field = field.child("readinessGates").index(i);
        let field = field.child("conditionType");
        names::check_qualified_name(&gate.condition_type, &field, faults);
    }
}
