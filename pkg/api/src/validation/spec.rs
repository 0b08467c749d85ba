use std::{
    collections::{BTreeSet, HashSet},
    fmt,
};

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};

use super::{
    failure_rules,
    fault::{Fault, Faults},
    names,
    path::{Path, SPEC},
    quantities, queueing, role_ports, template,
    template_decode::DecodedTemplates,
    volumes,
};
use crate::{
    dijob::{DIJobSpec, ReplicaGroup},
    names::{
        MAIN_CONTAINER, MAX_LEARNER_GPUS, MAX_REPLICAS, MAX_UNIT_SIZE, PORT_NAME,
        max_job_name_len_with_unit,
    },
    resources::{GPU_RESOURCE, ReplicaResources},
    role::Role,
    unit::UnitSpec,
};

/// Supported values of `spec.cleanPodPolicy`.
pub const CLEAN_POD_POLICIES: [&str; 3] = ["None", "Running", "All"];

/// Implements [`Kind::repair`](super::Kind::repair) for jobs.
pub(super) fn repair_spec(object: &mut Value, faults: &mut Faults) -> Vec<String> {
    let spec = &mut object["spec"];
    if !spec.is_object() {
        let message = "a DIJob needs at least spec.coordinator.template";
        faults.push(Fault::required(SPEC, message));
        *spec = json!({"coordinator": {"template": {}}});
        return vec![SPEC.to_string()];
    }
    if let Some(policy) = unsupported_policy(&spec["cleanPodPolicy"]) {
        faults.push(policy);
        spec["cleanPodPolicy"] = json!("");
    }
    let is_declared = |role: &Role| *role == Role::Coordinator || !spec[role.label()].is_null();
    let declared: Vec<_> = Role::DECLARED.into_iter().filter(is_declared).collect();
    declared
        .into_iter()
        .filter_map(|role| {
            let user = format_args!("the {role} runs in");
            require_template(spec, role.label(), user, faults)
        })
        .collect()
}

/// Fills in the template of a part of the spec if it is missing, and returns its path in that case.
/// `user` completes the message "the pod that …".
pub(super) fn require_template(
    spec: &mut Value,
    part: &str,
    user: impl fmt::Display,
    faults: &mut Faults,
) -> Option<String> {
    if spec[part]["template"].is_object() {
        return None;
    }
    let part_field = SPEC.child(part);
    let field = part_field.child("template");
    faults.push(Fault::required(field, format_args!("the pod that {user}")));
    match spec[part].as_object_mut() {
        Some(part) => drop(part.insert("template".to_owned(), json!({}))),
        None => spec[part] = json!({"template": {}}),
    }
    Some(field.to_string())
}

fn unsupported_policy(policy: &Value) -> Option<Fault> {
    let other_spellings = ["", "ALL"];
    let known =
        |policy: &str| CLEAN_POD_POLICIES.contains(&policy) || other_spellings.contains(&policy);
    let is_supported = policy.is_null() || policy.as_str().is_some_and(known);
    (!is_supported).then(|| {
        Fault::not_supported(
            SPEC.child("cleanPodPolicy"),
            policy.clone(),
            &CLEAN_POD_POLICIES,
        )
    })
}

/// Checks a spec.
pub(super) fn check_spec(spec: &DIJobSpec, faults: &mut Faults) {
    let templates = DecodedTemplates::of_job(spec, faults);
    let mut found = Faults::default();
    check_decoded_spec(spec, &templates, &mut found);
    faults.extend(templates.masked.unrelated_faults(found.into_vec()));
}

fn check_decoded_spec(spec: &DIJobSpec, templates: &DecodedTemplates, faults: &mut Faults) {
    let class = spec.priority_class_name.as_str();
    names::check_object_name(class, &SPEC.child("priorityClassName"), faults);
    volumes::check_names(&spec.volumes, &SPEC, faults);
    volumes::check_sizes(&spec.volumes, &SPEC, faults);
    let empty = PodSpec::default();
    for role in Role::DECLARED {
        let (Some(declared), Some(template)) = (spec.declared(role), templates.get(role)) else {
            continue;
        };
        let part = SPEC.child(role.label());
        let field = part.child("template");
        let field = field.child("spec");
        let pod = template.spec.as_ref().unwrap_or(&empty);
        template::check_pod(pod, Some(&spec.volumes), &field, faults);
        let unit = spec.unit(role);
        if role == Role::Learner && unit.is_none() {
            role_ports::check_reserved_names(pod, &field, faults);
        }
        check_not_negative(Some(declared.replicas), &part.child("replicas"), faults);
        check_groups(declared.groups, &part, faults);
        let unit_field = part.child("unit");
        if let Some(unit) = unit {
            check_unit(unit, &unit_field, faults);
        }
        if let Some(leader) = templates.leader(role) {
            let field = unit_field.child("leaderTemplate");
            let pod = leader.spec.as_ref().unwrap_or(&empty);
            template::check_pod(pod, Some(&spec.volumes), &field.child("spec"), faults);
        }
    }
    check_total_replicas(spec, faults);
    failure_rules::check_rules(&spec.failure_rules, faults);
    if let Some(queueing) = &spec.queueing {
        queueing::check_queueing(queueing, faults);
    }
    check_learner_gpus(spec, templates, faults);
    let limit = Some(spec.backoff_limit);
    check_not_negative(limit, &SPEC.child("backoffLimit"), faults);
    let ttl = spec.ttl_seconds_after_finished;
    check_not_negative(ttl, &SPEC.child("ttlSecondsAfterFinished"), faults);
    if let Some(deadline) = spec.active_deadline_seconds
        && deadline < 1
    {
        faults.push(Fault::invalid(
            SPEC.child("activeDeadlineSeconds"),
            deadline,
            "must be greater than zero; omit it for no limit",
        ));
    }
}

fn check_unit(unit: &UnitSpec, field: &Path<'_>, faults: &mut Faults) {
    if !is_valid_size(unit) {
        let why = format_args!("must be between 1 and {MAX_UNIT_SIZE} pods");
        faults.push(Fault::invalid(field.child("size"), unit.size, why));
    }
    let key = unit.topology_key.as_str();
    names::check_label_key(key, &field.child("topologyKey"), faults);
}

fn is_valid_size(unit: &UnitSpec) -> bool {
    (1..=MAX_UNIT_SIZE).contains(&unit.size)
}

/// Returns the maximum length of the name of a job: the names of the pods of its units must stay
/// valid.
pub(super) fn max_job_name_len(spec: &DIJobSpec) -> usize {
    let limits = Role::DECLARED.into_iter().filter_map(|role| {
        let unit = spec.unit(role).filter(|unit| is_valid_size(unit))?;
        Some(max_job_name_len_with_unit(role, unit.size))
    });
    let without_units = crate::names::max_job_name_len();
    limits.min().unwrap_or(without_units)
}

/// Checks GPU counts: each process of a learner group has its own port, counted up from the
/// learner's.
fn check_learner_gpus(spec: &DIJobSpec, templates: &DecodedTemplates, faults: &mut Faults) {
    let Some(learner) = &spec.learner else { return };
    let decoded = templates.get(Role::Learner);
    let decoded = decoded.and_then(|template| template.spec.as_ref());
    let first = learner.template.named_port();
    let first = first.unwrap_or_else(|| Role::Learner.default_port());
    let mut sizes = BTreeSet::new();
    let mut check_gpus = |resources: &ReplicaResources, field: &Path<'_>| {
        let gpus = spec.learner_gpus(resources);
        if gpus > MAX_LEARNER_GPUS {
            let why = format_args!("must be no more than {MAX_LEARNER_GPUS} GPUs per learner");
            faults.push(Fault::invalid(field, gpus, why));
        } else if gpus > 1 && first.saturating_add(gpus - 1) > role_ports::MAX_PORT {
            let why = format_args!(
                "a learner uses one port per GPU, starting at {PORT_NAME} {first}, and the last one would exceed {}; choose a lower {PORT_NAME}",
                role_ports::MAX_PORT
            );
            faults.push(Fault::invalid(field, gpus, why));
        } else if gpus > 1 {
            sizes.insert(gpus);
        }
    };
    let part = SPEC.child(Role::Learner.label());
    let template = part.child("template");
    let containers = decoded.into_iter().flat_map(|pod| &pod.containers);
    let main = containers.take_while(|c| c.name != MAIN_CONTAINER).count();
    let pod = template.child("spec");
    let container = pod.child("containers").index(main);
    let resources = container.child("resources");
    check_gpus(
        &ReplicaResources::default(),
        &resources.child("limits").key(GPU_RESOURCE),
    );
    for (i, group) in learner.groups.iter().enumerate() {
        let group_field = part.child("groups").index(i);
        check_gpus(
            &group.resources,
            &group_field.child("resources").child("gpus"),
        );
    }
    if let Some(decoded) = decoded {
        role_ports::check_ddp_ports(decoded, first, &sizes, &pod, faults);
    }
}

/// Checks the sum of the pods of all declared replicas; reports the count at which it becomes too
/// large. A learner group counts as one.
fn check_total_replicas(spec: &DIJobSpec, faults: &mut Faults) {
    let max = i64::from(MAX_REPLICAS);
    let mut sum = 0;
    let mut add = |count: i32, size: i32, field: &Path<'_>| {
        let before = sum;
        sum += i64::from(count.max(0)) * i64::from(size);
        if before <= max && sum > max {
            let pods = match size {
                1 => String::new(),
                size => format!(" (each has {size} pods, which count)"),
            };
            let why = format_args!(
                "must be no more than {max} together with the job's other replicas{pods}"
            );
            faults.push(Fault::invalid(field, count, why));
        }
    };
    for role in [Role::Collector, Role::Learner] {
        let Some(declared) = spec.declared(role) else {
            continue;
        };
        let part = SPEC.child(role.label());
        let unit = spec.unit(role).filter(|unit| is_valid_size(unit));
        let size = unit.map_or(1, |unit| unit.size);
        add(declared.replicas, size, &part.child("replicas"));
        for (i, group) in declared.groups.iter().enumerate() {
            add(
                group.replicas,
                size,
                &part.child("groups").index(i).child("replicas"),
            );
        }
    }
}

/// Requires a number of at least 0 if the field is set.
pub(super) fn check_not_negative(value: Option<i32>, field: &Path<'_>, faults: &mut Faults) {
    if let Some(value) = value.filter(|value| *value < 0) {
        let why = "must be greater than or equal to 0";
        faults.push(Fault::invalid(field, value, why));
    }
}

fn check_groups(groups: &[ReplicaGroup], field: &Path<'_>, faults: &mut Faults) {
    let mut earlier = HashSet::new();
    for (i, group) in groups.iter().enumerate() {
        let field = field.child("groups").index(i);
        let name = field.child("name");
        names::check_label_name(&group.name, &name, faults);
        names::check_unique(&mut earlier, &group.name, &name, faults);
        check_not_negative(Some(group.replicas), &field.child("replicas"), faults);
        quantities::check_group_resources(&group.resources, &field.child("resources"), faults);
    }
}
