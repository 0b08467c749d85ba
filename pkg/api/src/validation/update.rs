use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Fault, judge,
    path::SPEC,
    spec::DECLARED,
    strict::{self, Seen},
    without_nulls,
};
use crate::{DIJob, DIJobSpec, Phase};

/// Objects that say nothing when they are empty.
const EMPTY_SAYS_NOTHING: [&str; 8] = [
    "metadata",
    "resources",
    "limits",
    "requests",
    "securityContext",
    "labels",
    "annotations",
    "nodeSelector",
];

/// Decodes and validates a `DIJob` that takes the place of `old`; nothing where the specs say the same.
///
/// An unchanged spec is always fine, whatever is wrong with it. Faults that a started job has already do not hold up other changes.
///
/// # Errors
/// Every fault found.
pub fn dijob_update(old: &Value, new: &Value) -> Result<Option<DIJob>, Vec<Fault>> {
    if spec_unchanged(old, new) {
        return Ok(None);
    }
    let (job, all) = judge::<DIJob>(new);
    let stage = stage(&old["status"]);
    let mut faults = all.clone();
    if stage != Stage::Waiting {
        let (_, known) = judge::<DIJob>(old);
        faults.retain(|fault| !known.contains(fault));
        faults.extend(frozen(stage, old, new));
    }
    match job {
        Some(job) if faults.is_empty() => Ok(Some(job)),
        // A job that is as unreadable as before was not made worse, but cannot be handed out.
        _ if faults.is_empty() => Err(all),
        _ => Err(faults),
    }
}

/// Whether both objects say the same in their specs, defaults filled in.
pub fn spec_unchanged(old: &Value, new: &Value) -> bool {
    if old["spec"] == new["spec"] {
        return true;
    }
    let (Some(before), Some(after)) = (decoded(old), decoded(new)) else {
        return false;
    };
    let was_known = |fault| before.unknown.contains(fault);
    before.spec == after.spec && after.unknown.iter().all(was_known)
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Waiting,
    Started,
    Ended,
}

fn stage(status: &Value) -> Stage {
    let phase = status["phase"].as_str().unwrap_or_default();
    if [Phase::Succeeded, Phase::Failed]
        .iter()
        .any(|end| end.as_str() == phase)
    {
        Stage::Ended
    } else if !status["startTime"].is_null() || has_begun(phase, &status["plan"]) {
        Stage::Started
    } else {
        Stage::Waiting
    }
}

/// A held job has no pods that a change could miss; one that has no phase yet has them, or is about to, once they are planned.
fn has_begun(phase: &str, plan: &Value) -> bool {
    match phase {
        "" => plan.as_array().is_some_and(|plan| !plan.is_empty()),
        phase => phase != Phase::Suspended.as_str(),
    }
}

fn frozen(stage: Stage, old: &Value, new: &Value) -> Vec<Fault> {
    let (before, after) = match (decoded(old), decoded(new)) {
        (Some(before), Some(after)) => (before.spec, after.spec),
        _ => (plain(&old["spec"]), plain(&new["spec"])),
    };
    let changed = if stage == Stage::Ended {
        changes(&of_ended(before), &of_ended(after))
    } else {
        changes(&before, &after)
    };
    let refused = |field: &&String| match stage {
        Stage::Waiting => false,
        Stage::Started => {
            ["volumes", "priorityClassName", "group"].contains(&field.as_str())
                || field.ends_with(".template")
        }
        Stage::Ended => *field != "ttlSecondsAfterFinished",
    };
    let why = if stage == Stage::Ended {
        "may not be changed once the job has ended, only replicas, suspend and ttlSecondsAfterFinished; create a new job instead"
    } else {
        "may not be changed once the job has started; suspend it and wait for its phase Suspended, or create a new job"
    };
    let refused = changed.iter().filter(refused);
    refused
        .map(|field| Fault::forbidden(format!("spec.{field}"), why))
        .collect()
}

/// A spec without what changes nothing of an ended job. Counts are lowered by the endpoint, and whoever applies a manifest again, unchanged,
/// sets them back.
fn of_ended(mut spec: Value) -> Value {
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("suspend");
    }
    for role in DECLARED {
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

/// Fields of the spec that differ, those of roles one by one.
fn changes(before: &Value, after: &Value) -> Vec<String> {
    let mut changed = Vec::new();
    for name in names_of(before, after) {
        let (before, after) = (&before[name], &after[name]);
        if before == after {
            continue;
        }
        if DECLARED.iter().any(|role| role.label() == name) {
            let parts = names_of(before, after).into_iter();
            let parts = parts.filter(|part| before[*part] != after[*part]);
            changed.extend(parts.map(|part| format!("{name}.{part}")));
        } else {
            changed.push(name.to_owned());
        }
    }
    changed
}

fn names_of<'a>(before: &'a Value, after: &'a Value) -> BTreeSet<&'a str> {
    let objects = [before, after].into_iter().filter_map(Value::as_object);
    objects
        .flat_map(|object| object.keys().map(String::as_str))
        .collect()
}

/// A spec as it is understood.
struct Understood {
    spec: Value,
    /// Fields that were dropped.
    unknown: Vec<Fault>,
}

fn decoded(object: &Value) -> Option<Understood> {
    let mut seen = Seen::default();
    let spec = &without_nulls(object)["spec"];
    let spec: DIJobSpec = strict::read(spec, Some(SPEC), &mut seen).ok()?;
    let spec = plain(&serde_json::to_value(spec).ok()?);
    let unknown = seen.unknown;
    Some(Understood { spec, unknown })
}

/// Without what makes no difference: nulls, empty lists, and some empty objects.
fn plain(value: &Value) -> Value {
    let says_nothing = |name: &str, value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && EMPTY_SAYS_NOTHING.contains(&name),
        _ => false,
    };
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), plain(value)))
            .filter(|(name, value)| !says_nothing(name, value))
            .collect(),
        Value::Array(items) => items.iter().map(plain).collect(),
        other => other.clone(),
    }
}
