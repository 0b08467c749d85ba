use serde_json::{Value, json};

use super::{Fault, names, ports, quantities, template};
use crate::{
    DIJobSpec, GPU_RESOURCE, ReplicaGroup, ReplicaResources, Role,
    names::{MAIN_CONTAINER, MAX_LEARNER_GPUS, PORT_NAME},
};

/// Values of `spec.cleanPodPolicy` that a user may write.
pub const CLEAN_POD_POLICIES: [&str; 3] = ["None", "Running", "All"];

/// The roles that a spec declares.
pub(super) const DECLARED: [Role; 3] = [Role::Coordinator, Role::Collector, Role::Learner];

/// What has a better message before it is decoded; it is put right in `spec`, so that the rest can be read.
///
/// Returns the fields that were filled in.
pub(super) fn check_undecoded(spec: &mut Value, faults: &mut Vec<Fault>) -> Vec<String> {
    if let Some(policy) = unsupported_policy(&spec["cleanPodPolicy"]) {
        faults.push(policy);
        spec["cleanPodPolicy"] = json!("");
    }
    let mut missing = Vec::new();
    for role in DECLARED {
        let part = &spec[role.label()];
        if (role == Role::Coordinator || !part.is_null()) && !part["template"].is_object() {
            let field = format!("spec.{role}.template");
            let detail = format_args!("the pod that the {role} runs in");
            faults.push(Fault::required(field.as_str(), detail));
            missing.push(field);
            match spec[role.label()].as_object_mut() {
                Some(part) => drop(part.insert("template".to_owned(), json!({}))),
                None => spec[role.label()] = json!({"template": {}}),
            }
        }
    }
    missing
}

fn unsupported_policy(policy: &Value) -> Option<Fault> {
    let spelt_otherwise = ["", "ALL"];
    let known =
        |policy: &str| CLEAN_POD_POLICIES.contains(&policy) || spelt_otherwise.contains(&policy);
    let fine = policy.is_null() || policy.as_str().is_some_and(known);
    (!fine)
        .then(|| Fault::not_supported("spec.cleanPodPolicy", policy.clone(), &CLEAN_POD_POLICIES))
}

/// A spec that could be decoded.
pub(super) fn check(spec: &DIJobSpec, faults: &mut Vec<Fault>) {
    names::check_group(&spec.group, faults);
    names::check_priority_class(&spec.priority_class_name, faults);
    template::check_volumes(&spec.volumes, "spec", faults);
    for role in DECLARED {
        let Some(declared) = spec.declared(role) else {
            continue;
        };
        let field = format!("spec.{role}.template");
        template::check(declared.template, &field, &spec.volumes, faults);
        if let (Role::Learner, Some(pod)) = (role, &declared.template.spec) {
            ports::check_reserved(pod, &format!("{field}.spec"), faults);
        }
        check_count(declared.replicas, &format!("spec.{role}.replicas"), faults);
        check_groups(declared.groups, &format!("spec.{role}.groups"), faults);
    }
    check_learner_gpus(spec, faults);
    check_count(spec.backoff_limit, "spec.backoffLimit", faults);
    if let Some(ttl) = spec.ttl_seconds_after_finished {
        check_count(ttl, "spec.ttlSecondsAfterFinished", faults);
    }
    if let Some(deadline) = spec.active_deadline_seconds
        && deadline < 1
    {
        faults.push(Fault::invalid(
            "spec.activeDeadlineSeconds",
            deadline,
            "must be greater than zero; leave it out for no limit",
        ));
    }
}

/// Each process of a learner of several GPUs has a port of its own, from the learner's upwards.
fn check_learner_gpus(spec: &DIJobSpec, faults: &mut Vec<Fault>) {
    let Some(learner) = &spec.learner else { return };
    let first = learner.template.spec.as_ref().and_then(ports::own);
    let first = first.unwrap_or_else(|| Role::Learner.default_port());
    let containers = learner.template.spec.iter().flat_map(|pod| &pod.containers);
    let main = containers.take_while(|c| c.name != MAIN_CONTAINER).count();
    let of_template = (
        format!("spec.learner.template.spec.containers[{main}].resources.limits[{GPU_RESOURCE}]"),
        ReplicaResources::default(),
    );
    let of_groups = learner.groups.iter().enumerate().map(|(i, group)| {
        let field = format!("spec.learner.groups[{i}].resources.gpus");
        (field, group.resources.clone())
    });
    for (field, resources) in std::iter::once(of_template).chain(of_groups) {
        let gpus = spec.learner_gpus(&resources);
        if gpus > MAX_LEARNER_GPUS {
            let why = format_args!("a learner has {MAX_LEARNER_GPUS} GPUs at most");
            faults.push(Fault::invalid(field, gpus, why));
        } else if gpus > 1 && first.saturating_add(gpus - 1) > ports::LAST {
            let why = format_args!(
                "GPUs of one learner need as many ports from {PORT_NAME} {first} on, and the last there is is {}; choose a lower {PORT_NAME}",
                ports::LAST
            );
            faults.push(Fault::invalid(field, gpus, why));
        }
    }
}

fn check_count(count: i32, field: &str, faults: &mut Vec<Fault>) {
    if count < 0 {
        let why = "must be greater than or equal to 0";
        faults.push(Fault::invalid(field, count, why));
    }
}

fn check_groups(groups: &[ReplicaGroup], field: &str, faults: &mut Vec<Fault>) {
    for (i, group) in groups.iter().enumerate() {
        let field = format!("{field}[{i}]");
        let name = format!("{field}.name");
        names::check_label_name(&group.name, &name, faults);
        let earlier = groups[..i].iter().map(|other| other.name.as_str());
        names::check_unique(earlier, &group.name, &name, faults);
        check_count(group.replicas, &format!("{field}.replicas"), faults);
        quantities::check_group(&group.resources, &format!("{field}.resources"), faults);
    }
}
