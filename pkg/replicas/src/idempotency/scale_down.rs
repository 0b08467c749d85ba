//! Which requests lowered the declared counts, and who goes for that, in annotations that change together with them. A request that comes again,
//! because its second write failed, must not lower them twice, and whoever else takes some away must not choose the same.

use std::collections::HashMap;

use di_api::{Role, names};
use di_cache::JobView;
use di_plan::find_entry;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::history::is_unexpired;
use crate::mutate::ReplicaGroupRef;

/// Counts that are kept, of all requests.
const MOST_KEPT: usize = 64;
/// Names that are kept, of all requests, the newest first: annotations have little room.
const MOST_NAMES: usize = 1024;

/// What is taken away of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScaleDown {
    /// By how much it is lowered.
    pub(crate) by: i32,
    /// Who goes for that; those that were not planned yet had no name.
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
    /// When it was; nothing where an older version wrote it, which is taken to be long ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<Time>,
}

/// What the request of this key has taken of the declared replicas lately.
pub(crate) fn recorded_scale_downs(
    job: &JobView,
    key: &str,
    now: Timestamp,
) -> HashMap<ReplicaGroupRef, ScaleDown> {
    let all = read_records(job, now).into_iter();
    let all = all.filter(|lowered| lowered.key == key);
    all.map(|of| {
        let (by, names) = (of.by, of.names);
        ((of.role, of.group), ScaleDown { by, names })
    })
    .collect()
}

/// Who goes because of any request.
pub(crate) fn recorded_pod_names(job: &JobView, now: Timestamp) -> Vec<String> {
    let all = read_records(job, now).into_iter();
    all.flat_map(|lowered| lowered.names).collect()
}

/// The fields of the job that note what the request of this key takes, each a path and what is to stand there.
pub(crate) fn record_fields(
    job: &JobView,
    key: &str,
    lower: &HashMap<ReplicaGroupRef, ScaleDown>,
    now: Timestamp,
) -> Vec<(Vec<String>, Value)> {
    let mut all = read_records(job, now);
    for ((role, group), fewer) in lower {
        let same = |old: &&mut RecordedScaleDown| {
            old.key == key && old.role == *role && old.group == *group
        };
        if let Some(old) = all.iter_mut().find(same) {
            old.by += fewer.by;
            old.names.extend(fewer.names.iter().cloned());
            old.at = Some(Time(now));
        } else {
            all.push(RecordedScaleDown {
                key: key.to_owned(),
                role: *role,
                group: group.clone(),
                by: fewer.by,
                names: fewer.names.clone(),
                at: Some(Time(now)),
            });
        }
    }
    all.drain(..all.len().saturating_sub(MOST_KEPT));
    let mut room = MOST_NAMES;
    for lowered in all.iter_mut().rev() {
        lowered.names.truncate(room);
        room -= lowered.names.len();
    }
    // A list of plain fields can always be written.
    let text = serde_json::to_string(&all).unwrap_or_default();
    let pods_to_delete = pods_to_delete(job, lower).map(|all| (names::PODS_TO_DELETE_ANNOTATION, all));
    let notes = std::iter::once((names::SCALE_DOWNS_ANNOTATION, text)).chain(pods_to_delete);
    let path = ["metadata", "annotations"].map(str::to_owned).to_vec();
    // Where there are none, there is nothing that one could be added to.
    if job.metadata.annotations.is_none() {
        let notes: HashMap<_, _> = notes.collect();
        return vec![(path, json!(notes))];
    }
    let at = |annotation: &str| [&path[..], &[annotation.to_owned()]].concat();
    notes
        .map(|(annotation, text)| (at(annotation), text.into()))
        .collect()
}

/// Whom the reconciler is to take, should it come first: also those that were named before and are yet to go.
fn pods_to_delete(job: &JobView, lower: &HashMap<ReplicaGroupRef, ScaleDown>) -> Option<String> {
    let new: Vec<&str> = lower
        .values()
        .flat_map(|fewer| fewer.names.iter().map(String::as_str))
        .collect();
    if new.is_empty() {
        return None;
    }
    let annotations = job.metadata.annotations.as_ref();
    let before = annotations.and_then(|all| all.get(names::PODS_TO_DELETE_ANNOTATION));
    let before = before.into_iter().flat_map(|all| all.split(','));
    let stay = before.filter(|name| {
        find_entry(&job.plan, name).is_some_and(di_api::PlanEntry::is_wanted) && !new.contains(name)
    });
    let mut all: Vec<&str> = stay.collect();
    all.extend(&new);
    Some(all.join(","))
}

/// What is noted of keys that have not expired. Whatever cannot be read was not written by us.
fn read_records(job: &JobView, now: Timestamp) -> Vec<RecordedScaleDown> {
    let annotations = job.metadata.annotations.as_ref();
    let mut all: Vec<RecordedScaleDown> = annotations
        .and_then(|all| serde_json::from_str(all.get(names::SCALE_DOWNS_ANNOTATION)?).ok())
        .unwrap_or_default();
    all.retain(|lowered| lowered.at.as_ref().is_some_and(|at| is_unexpired(at, now)));
    all
}
