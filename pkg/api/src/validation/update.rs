use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    fault::{Fault, Faults},
    path::SPEC,
    queueing::{self, QUEUE_LABELS},
    strict_decode::{self, Findings},
    validate::{Valid, into_result, validate_object, without_nulls},
};
use crate::{
    dijob::{DIJob, DIJobSpec},
    phase::Phase,
    role::Role,
};

/// Objects that mean the same whether they are empty or unset.
const EMPTY_MEANS_UNSET: [&str; 8] = [
    "metadata",
    "resources",
    "limits",
    "requests",
    "securityContext",
    "labels",
    "annotations",
    "nodeSelector",
];

/// Decodes and validates an update of a `DIJob` from `old` to `new`. Returns `None` if the spec is
/// unchanged.
///
/// An unchanged spec is always allowed, even if it is invalid; only the labels of the queue are
/// checked then. Faults that a started job already has do not block other changes.
///
/// # Errors
/// All faults, at most 1,000.
pub fn validate_dijob_update(old: &Value, new: &Value) -> Result<Option<Valid<DIJob>>, Vec<Fault>> {
    let stage = job_stage(&old["status"]);
    if is_spec_unchanged(old, new) {
        let faults = label_faults(stage, old, new);
        return if faults.is_empty() {
            Ok(None)
        } else {
            Err(faults)
        };
    }
    let (job, all) = validate_object::<DIJob>(new);
    let mut faults = all.clone();
    if stage != Stage::Waiting {
        let (_, known) = validate_object::<DIJob>(old);
        faults.retain(|fault| !known.contains(fault));
        faults.extend(frozen_field_faults(stage, old, new));
        faults.extend(label_faults(stage, old, new));
    }
    if job.is_none() && faults.is_empty() {
        // The update adds no fault, but the job is still undecodable and cannot be returned.
        return Err(all);
    }
    into_result((job, faults)).map(Some)
}

/// Whether the specs of both objects mean the same after defaulting.
pub fn is_spec_unchanged(old: &Value, new: &Value) -> bool {
    if old["spec"] == new["spec"] {
        return true;
    }
    let (Some(before), Some(after)) = (decode_spec(old), decode_spec(new)) else {
        return false;
    };
    let existed_before = |fault| before.unknown.contains(fault);
    before.spec == after.spec && after.unknown.iter().all(existed_before)
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Waiting,
    Started,
    Ended,
}

fn job_stage(status: &Value) -> Stage {
    let phase = status["phase"].as_str().unwrap_or_default();
    if [Phase::Succeeded, Phase::Failed]
        .iter()
        .any(|end| end.as_str() == phase)
    {
        Stage::Ended
    } else if !status["startTime"].is_null() || has_started(phase, status) {
        Stage::Started
    } else {
        Stage::Waiting
    }
}

/// Whether pods of the job may exist, which a change of the template would not reach. A suspended
/// job has none, and a queued one has none until it is admitted; a job without a phase has them as
/// soon as they are planned.
fn has_started(phase: &str, status: &Value) -> bool {
    if phase.is_empty() {
        return status["plan"]
            .as_array()
            .is_some_and(|plan| !plan.is_empty());
    }
    if phase == Phase::Queued.as_str() {
        return !status["queueing"].is_null();
    }
    phase != Phase::Suspended.as_str()
}

/// Returns the faults of the queue labels that the update changes. Existing invalid labels do not
/// block other changes.
fn label_faults(stage: Stage, old: &Value, new: &Value) -> Vec<Fault> {
    let why = "may not be changed once the job has been admitted; suspend the job and wait for phase Suspended";
    let mut faults = Faults::default();
    for key in changed_queue_labels(old, new) {
        match stage {
            Stage::Waiting => queueing::check_label(key, queue_label(new, key), &mut faults),
            Stage::Started => {
                faults.push(Fault::forbidden(format!("metadata.labels[{key}]"), why));
            }
            Stage::Ended => {}
        }
    }
    faults.into_vec()
}

/// Returns the keys of the queue labels that the update adds, changes or removes.
fn changed_queue_labels(old: &Value, new: &Value) -> impl Iterator<Item = &'static str> {
    let is_changed = move |key: &&str| queue_label(old, key) != queue_label(new, key);
    QUEUE_LABELS.into_iter().filter(is_changed)
}

/// Returns the value of a label; an empty label means the same as none.
fn queue_label<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["labels"][key]
        .as_str()
        .unwrap_or_default()
}

fn frozen_field_faults(stage: Stage, old: &Value, new: &Value) -> Vec<Fault> {
    let (before, after) = match (decode_spec(old), decode_spec(new)) {
        (Some(before), Some(after)) => (before.spec, after.spec),
        _ => (normalize(&old["spec"]), normalize(&new["spec"])),
    };
    let changed = if stage == Stage::Ended {
        changed_fields(
            &without_fields_of_ended(before),
            &without_fields_of_ended(after),
        )
    } else {
        changed_fields(&before, &after)
    };
    let is_forbidden = |field: &&String| match stage {
        Stage::Waiting => false,
        Stage::Started => {
            let name = field.rsplit('.').next().unwrap_or(field);
            ["volumes", "priorityClassName", "group", "template", "unit"].contains(&name)
        }
        Stage::Ended => *field != "ttlSecondsAfterFinished",
    };
    let why = if stage == Stage::Ended {
        "may not be changed once the job has ended (only replicas, suspend and ttlSecondsAfterFinished may); create a new job instead"
    } else {
        "may not be changed once the job has started; suspend the job and wait for phase Suspended, or create a new job"
    };
    let forbidden = changed.iter().filter(is_forbidden);
    forbidden
        .map(|field| Fault::forbidden(format!("spec.{field}"), why))
        .collect()
}

/// Returns the spec without the fields that may change after the job has ended. The endpoint lowers
/// counts, so users who apply the same manifest again reset them.
fn without_fields_of_ended(mut spec: Value) -> Value {
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("suspend");
    }
    for role in Role::DECLARED {
        let part = spec.get_mut(role.label()).and_then(Value::as_object_mut);
        let Some(part) = part else { continue };
        part.remove("replicas");
        let groups = part.get_mut("groups").and_then(Value::as_array_mut);
        let groups = groups.into_iter().flatten();
        for group in groups.filter_map(Value::as_object_mut) {
            group.remove("replicas");
        }
    }
    spec
}

/// Returns the changed fields of the spec; for roles, the changed fields below.
fn changed_fields(before: &Value, after: &Value) -> Vec<String> {
    let mut changed = Vec::new();
    for name in field_names(before, after) {
        let (before, after) = (&before[name], &after[name]);
        if before == after {
            continue;
        }
        if Role::DECLARED.iter().any(|role| role.label() == name) {
            let parts = field_names(before, after).into_iter();
            let parts = parts.filter(|part| before[*part] != after[*part]);
            changed.extend(parts.map(|part| format!("{name}.{part}")));
        } else {
            changed.push(name.to_owned());
        }
    }
    changed
}

fn field_names<'a>(before: &'a Value, after: &'a Value) -> BTreeSet<&'a str> {
    let objects = [before, after].into_iter().filter_map(Value::as_object);
    objects
        .flat_map(|object| object.keys().map(String::as_str))
        .collect()
}

/// A decoded and normalized spec.
struct NormalizedSpec {
    spec: Value,
    /// Unknown fields, which decoding dropped.
    unknown: Vec<Fault>,
}

fn decode_spec(object: &Value) -> Option<NormalizedSpec> {
    let mut findings = Findings::default();
    let spec = &without_nulls(object)["spec"];
    let spec: DIJobSpec = strict_decode::decode_strictly(spec, Some(SPEC), &mut findings).ok()?;
    let spec = normalize(&serde_json::to_value(spec).ok()?);
    let unknown = findings.unknown;
    Some(NormalizedSpec { spec, unknown })
}

/// Quantities as text: 3 and "3" mean the same.
fn quantities(list: &Map<String, Value>) -> Value {
    let text = |value: &Value| match value {
        Value::Number(number) => Value::String(number.to_string()),
        other => other.clone(),
    };
    let texts = list.iter().map(|(name, value)| (name.clone(), text(value)));
    texts.collect()
}

/// Drops nulls, empty lists and some empty objects, which mean the same as unset fields.
fn normalize(value: &Value) -> Value {
    let means_unset = |name: &str, value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && EMPTY_MEANS_UNSET.contains(&name),
        _ => false,
    };
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| match (name.as_str(), value) {
                ("limits" | "requests", Value::Object(list)) => (name.clone(), quantities(list)),
                _ => (name.clone(), normalize(value)),
            })
            .filter(|(name, value)| !means_unset(name, value))
            .collect(),
        Value::Array(items) => items.iter().map(normalize).collect(),
        other => other.clone(),
    }
}
