//! Records which requests lowered the declared counts, and the names that are deleted for it, in
//! annotations that are written together with the counts. A repeated request must not lower the counts
//! twice, and another request must not choose the same names. See docs/decisions/0009 and 0014.

use std::collections::HashMap;

use di_api::{Role, names};
use di_cache::JobView;
use di_plan::find_entry;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::history::is_unexpired;

/// Limit of records over all requests.
const MAX_RECORDS: usize = 64;
/// Limit of names over all records; the newest are kept. Annotations have a size limit.
const MAX_NAMES: usize = 1024;

/// Names one declared count: the role, and one of its replica groups or none.
pub(crate) type ReplicaGroupRef = (Role, Option<String>);

/// A scale-down of one declared count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScaleDown {
    /// Number of replicas.
    pub(crate) by: i32,
    /// Names of the deleted replicas. Replicas without a plan entry have no name.
    pub(crate) names: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct RecordedScaleDown {
    key: String,
    role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    by: i32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
    /// Time of the request. Older versions wrote none; such a record counts as expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<Time>,
}

/// Returns the recent scale-downs of the request with this key.
pub(crate) fn recorded_scale_downs(
    job: &JobView,
    key: &str,
    now: Timestamp,
) -> HashMap<ReplicaGroupRef, ScaleDown> {
    let all = read_records(job, now).into_iter();
    let all = all.filter(|record| record.key == key);
    all.map(|record| {
        let (by, names) = (record.by, record.names);
        ((record.role, record.group), ScaleDown { by, names })
    })
    .collect()
}

/// Returns the names that recent requests of any key delete.
pub(crate) fn recorded_pod_names(job: &JobView, now: Timestamp) -> Vec<String> {
    let all = read_records(job, now).into_iter();
    all.flat_map(|record| record.names).collect()
}

/// Returns the annotations that record the scale-down of this key, each a path and its value.
pub(crate) fn record_fields(
    job: &JobView,
    key: &str,
    scale_downs: &HashMap<ReplicaGroupRef, ScaleDown>,
    now: Timestamp,
) -> Vec<(Vec<String>, Value)> {
    let mut all = read_records(job, now);
    for ((role, group), scale_down) in scale_downs {
        let same = |old: &&mut RecordedScaleDown| {
            old.key == key && old.role == *role && old.group == *group
        };
        if let Some(old) = all.iter_mut().find(same) {
            old.by += scale_down.by;
            old.names.extend(scale_down.names.iter().cloned());
            old.at = Some(Time(now));
        } else {
            all.push(RecordedScaleDown {
                key: key.to_owned(),
                role: *role,
                group: group.clone(),
                by: scale_down.by,
                names: scale_down.names.clone(),
                at: Some(Time(now)),
            });
        }
    }
    all.drain(..all.len().saturating_sub(MAX_RECORDS));
    let mut names_left = MAX_NAMES;
    for record in all.iter_mut().rev() {
        record.names.truncate(names_left);
        names_left -= record.names.len();
    }
    // A list of plain fields can always be written.
    let text = serde_json::to_string(&all).unwrap_or_default();
    let pods_to_delete =
        pods_to_delete(job, scale_downs).map(|all| (names::PODS_TO_DELETE_ANNOTATION, all));
    let annotations_to_set =
        std::iter::once((names::SCALE_DOWNS_ANNOTATION, text)).chain(pods_to_delete);
    let path = ["metadata", "annotations"].map(str::to_owned).to_vec();
    // Without annotations, JSON patch cannot add a single one.
    if job.metadata.annotations.is_none() {
        let annotations_to_set: HashMap<_, _> = annotations_to_set.collect();
        return vec![(path, json!(annotations_to_set))];
    }
    let at = |annotation: &str| [&path[..], &[annotation.to_owned()]].concat();
    annotations_to_set
        .map(|(annotation, text)| (at(annotation), text.into()))
        .collect()
}

/// Returns the pods that the reconciler deletes first, including earlier ones that still exist.
/// It may reconcile the lowered count before the status is written. See docs/decisions/0014.
fn pods_to_delete(
    job: &JobView,
    scale_downs: &HashMap<ReplicaGroupRef, ScaleDown>,
) -> Option<String> {
    let new: Vec<&str> = scale_downs
        .values()
        .flat_map(|scale_down| scale_down.names.iter().map(String::as_str))
        .collect();
    if new.is_empty() {
        return None;
    }
    let annotations = job.metadata.annotations.as_ref();
    let before = annotations.and_then(|all| all.get(names::PODS_TO_DELETE_ANNOTATION));
    let before = before.into_iter().flat_map(|all| all.split(','));
    let remaining = before.filter(|name| {
        find_entry(&job.plan, name).is_some_and(di_api::PlanEntry::is_wanted) && !new.contains(name)
    });
    let mut all: Vec<&str> = remaining.collect();
    all.extend(&new);
    Some(all.join(","))
}

/// Reads the records that have not expired. Text that cannot be parsed counts as none.
fn read_records(job: &JobView, now: Timestamp) -> Vec<RecordedScaleDown> {
    let annotations = job.metadata.annotations.as_ref();
    let mut all: Vec<RecordedScaleDown> = annotations
        .and_then(|all| serde_json::from_str(all.get(names::SCALE_DOWNS_ANNOTATION)?).ok())
        .unwrap_or_default();
    all.retain(|record| record.at.as_ref().is_some_and(|at| is_unexpired(at, now)));
    all
}
