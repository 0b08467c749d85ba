//! What a `DIJob` must be to run: one validator for the webhook, the reconciler and the plugin.
//!
//! Messages are worded as Kubernetes' own (`spec.x: Invalid value: "y": …`) and say what to change.

use std::fmt;

use k8s_openapi::{api::core::v1::PodTemplateSpec, apimachinery::pkg::api::resource::Quantity};
use serde_json::Value;

use crate::{AggregatorConfig, DIJob, DIJobSpec, GPU_RESOURCE, ReplicaGroup, Role, names};

/// Kinds of faults, as the causes of a `Status` name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The field must be there and is not.
    Required,
    /// The value cannot be used.
    Invalid,
    /// The value is not one of those allowed.
    NotSupported,
    /// The value stands twice where it may stand once.
    Duplicate,
}

/// One fault of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind it is of.
    pub kind: FaultKind,
    /// Path of the field, as `spec.coordinator.template`.
    pub field: String,
    /// The value at fault, as JSON, and what to do about it.
    pub detail: String,
}

impl Fault {
    /// A field that must be there.
    pub fn required(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self {
            kind: FaultKind::Required,
            field: field.into(),
            detail: format!("Required value: {detail}"),
        }
    }

    /// A value that cannot be used.
    pub fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl fmt::Display,
    ) -> Self {
        Self {
            kind: FaultKind::Invalid,
            field: field.into(),
            detail: format!("Invalid value: {}: {detail}", value.into()),
        }
    }

    /// A value that is not one of `supported`.
    pub fn not_supported(
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: &[&str],
    ) -> Self {
        let supported: Vec<_> = supported.iter().map(|s| format!("{s:?}")).collect();
        Self {
            kind: FaultKind::NotSupported,
            field: field.into(),
            detail: format!(
                "Unsupported value: {}: supported values: {}",
                value.into(),
                supported.join(", ")
            ),
        }
    }

    /// A value that stands twice.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self {
            kind: FaultKind::Duplicate,
            field: field.into(),
            detail: format!("Duplicate value: {}", value.into()),
        }
    }

    /// The reason of the `Status` cause, as Kubernetes names it.
    pub fn reason(&self) -> &'static str {
        match self.kind {
            FaultKind::Required => "FieldValueRequired",
            FaultKind::Invalid => "FieldValueInvalid",
            FaultKind::NotSupported => "FieldValueNotSupported",
            FaultKind::Duplicate => "FieldValueDuplicate",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.detail)
    }
}

/// All faults in one line, as Kubernetes joins them.
pub fn summary(faults: &[Fault]) -> String {
    match faults {
        [one] => one.to_string(),
        many => {
            let all: Vec<_> = many.iter().map(ToString::to_string).collect();
            format!("[{}]", all.join(", "))
        }
    }
}

/// Values of `spec.cleanPodPolicy` that a user may write.
pub const CLEAN_POD_POLICIES: [&str; 3] = ["None", "Running", "All"];

/// Decodes and validates a `DIJob` of either served version.
///
/// # Errors
/// Every fault found, in the order of the fields.
pub fn dijob(object: &Value) -> Result<DIJob, Vec<Fault>> {
    let mut faults = Vec::new();
    let spec = &object["spec"];
    if spec.is_object() {
        check_policy(&spec["cleanPodPolicy"], &mut faults);
        check_template_present(spec, Role::Coordinator, true, &mut faults);
        for role in [Role::Collector, Role::Learner] {
            check_template_present(spec, role, false, &mut faults);
        }
    } else {
        faults.push(Fault::required(
            "spec",
            "a DIJob needs at least spec.coordinator.template",
        ));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let job: DIJob = decode(object)?;
    let faults = dijob_faults(&job);
    if faults.is_empty() {
        Ok(job)
    } else {
        Err(faults)
    }
}

/// Decodes and validates an `AggregatorConfig` of either served version.
///
/// # Errors
/// Every fault found.
pub fn aggregator_config(object: &Value) -> Result<AggregatorConfig, Vec<Fault>> {
    let template = &object["spec"]["aggregator"]["template"];
    if !template.is_object() {
        return Err(vec![Fault::required(
            "spec.aggregator.template",
            "the pod that aggregators run in",
        )]);
    }
    let config: AggregatorConfig = decode(object)?;
    let mut faults = Vec::new();
    check_template(
        &config.spec.aggregator.template,
        "spec.aggregator.template",
        &mut faults,
    );
    if faults.is_empty() {
        Ok(config)
    } else {
        Err(faults)
    }
}

fn decode<T: serde::de::DeserializeOwned>(object: &Value) -> Result<T, Vec<Fault>> {
    serde_path_to_error::deserialize(object).map_err(|error| {
        let path = error.path().to_string();
        vec![Fault {
            kind: FaultKind::Invalid,
            field: path,
            detail: format!("Invalid value: {}", error.into_inner()),
        }]
    })
}

/// The faults of a job that could be decoded.
pub fn dijob_faults(job: &DIJob) -> Vec<Fault> {
    let mut faults = Vec::new();
    check_name(
        job.metadata.name.as_deref().unwrap_or_default(),
        &mut faults,
    );
    check_spec(&job.spec, &mut faults);
    faults
}

fn check_policy(policy: &Value, faults: &mut Vec<Fault>) {
    let spelt_otherwise = ["", "ALL"];
    match policy {
        Value::Null => {}
        Value::String(policy)
            if CLEAN_POD_POLICIES.contains(&policy.as_str())
                || spelt_otherwise.contains(&policy.as_str()) => {}
        other => faults.push(Fault::not_supported(
            "spec.cleanPodPolicy",
            other.clone(),
            &CLEAN_POD_POLICIES,
        )),
    }
}

fn check_template_present(spec: &Value, role: Role, required: bool, faults: &mut Vec<Fault>) {
    let part = &spec[role.label()];
    if (required || !part.is_null()) && !part["template"].is_object() {
        faults.push(Fault::required(
            format!("spec.{role}.template"),
            format_args!("the pod that the {role} runs in"),
        ));
    }
}

fn check_name(name: &str, faults: &mut Vec<Fault>) {
    // With generateName the server fills the name in later, and asks again.
    if name.is_empty() {
        return;
    }
    let limit = names::max_job_name_len();
    if name.len() > limit {
        faults.push(Fault::invalid(
            "metadata.name",
            name,
            format_args!(
                "must be no more than {limit} characters, because the names of its pods and services are derived from it"
            ),
        ));
    }
    let label_chars = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !starts_well || !name.chars().all(label_chars) {
        faults.push(Fault::invalid(
            "metadata.name",
            name,
            "must consist of lower case letters, digits or '-' and start with a letter, because its services are named after it (a DNS-1035 label)",
        ));
    }
}

fn check_spec(spec: &DIJobSpec, faults: &mut Vec<Fault>) {
    for (i, volume) in spec.volumes.iter().enumerate() {
        if spec.volumes[..i]
            .iter()
            .any(|other| other.name == volume.name)
        {
            faults.push(Fault::duplicate(
                format!("spec.volumes[{i}].name"),
                volume.name.as_str(),
            ));
        }
    }
    for role in [Role::Coordinator, Role::Collector, Role::Learner] {
        let Some(declared) = spec.declared(role) else {
            continue;
        };
        check_template(declared.template, &format!("spec.{role}.template"), faults);
        check_count(declared.replicas, format!("spec.{role}.replicas"), faults);
        check_groups(declared.groups, &format!("spec.{role}.groups"), faults);
    }
    check_learner_gpus(spec, faults);
    check_count(spec.backoff_limit, "spec.backoffLimit".into(), faults);
    if let Some(ttl) = spec.ttl_seconds_after_finished {
        check_count(ttl, "spec.ttlSecondsAfterFinished".into(), faults);
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

/// A learner of several GPUs would need an aggregator and ddp learners, which are not made yet.
fn check_learner_gpus(spec: &DIJobSpec, faults: &mut Vec<Fault>) {
    let Some(learner) = &spec.learner else { return };
    let several = |gpus: Option<&Quantity>| gpus.is_some_and(|gpus| count_of(gpus) > 1.0);
    let detail =
        "learners of several GPUs are not supported yet; use several learners of one GPU each";
    if learner.replicas > 0 && several(template_gpus(&learner.template)) {
        let field = "spec.learner.replicas";
        faults.push(Fault::invalid(field, learner.replicas, detail));
    }
    for (i, group) in learner.groups.iter().enumerate() {
        if let Some(gpus) = group
            .resources
            .gpus
            .as_ref()
            .filter(|gpus| several(Some(gpus)))
        {
            let field = format!("spec.learner.groups[{i}].resources.gpus");
            faults.push(Fault::invalid(field, gpus.0.as_str(), detail));
        }
    }
}

fn template_gpus(template: &PodTemplateSpec) -> Option<&Quantity> {
    let containers = &template.spec.as_ref()?.containers;
    let main = containers
        .iter()
        .find(|c| c.name == names::MAIN_CONTAINER)?;
    main.resources.as_ref()?.limits.as_ref()?.get(GPU_RESOURCE)
}

/// GPUs come in whole numbers; what is none is for the server to refuse.
fn count_of(gpus: &Quantity) -> f64 {
    gpus.0.parse().unwrap_or(0.0)
}

fn check_count(count: i32, field: String, faults: &mut Vec<Fault>) {
    if count < 0 {
        faults.push(Fault::invalid(
            field,
            count,
            "must be greater than or equal to 0",
        ));
    }
}

fn check_groups(groups: &[ReplicaGroup], field: &str, faults: &mut Vec<Fault>) {
    for (i, group) in groups.iter().enumerate() {
        if groups[..i].iter().any(|other| other.name == group.name) {
            faults.push(Fault::duplicate(
                format!("{field}[{i}].name"),
                group.name.as_str(),
            ));
        }
        check_count(group.replicas, format!("{field}[{i}].replicas"), faults);
    }
}

fn check_template(template: &PodTemplateSpec, field: &str, faults: &mut Vec<Fault>) {
    let containers = template
        .spec
        .as_ref()
        .map_or(&[][..], |spec| spec.containers.as_slice());
    if !containers.iter().any(|c| c.name == names::MAIN_CONTAINER) {
        let found: Vec<_> = containers.iter().map(|c| c.name.as_str()).collect();
        let found = if found.is_empty() {
            "there are no containers".to_owned()
        } else {
            format!("found {}", found.join(", "))
        };
        faults.push(Fault::required(
            format!("{field}.spec.containers"),
            format_args!(
                "one container must be named {}, the main one; {found}",
                names::MAIN_CONTAINER
            ),
        ));
    }
}

#[cfg(test)]
mod tests;
