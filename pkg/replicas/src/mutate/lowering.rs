//! Which requests lowered the declared counts, in an annotation that changes together with them: a request that comes again, because its
//! second write failed, must not lower them twice.

use std::collections::HashMap;

use di_api::{Role, names};
use di_cache::JobView;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Bucket, answered::may_return};

/// Counts that are kept, of all requests.
const MOST_KEPT: usize = 64;

#[derive(Serialize, Deserialize)]
struct Lowered {
    key: String,
    role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    by: i32,
    /// When it was; nothing where an older version wrote it, which is taken to be long ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<Time>,
}

/// By how much the request of this key has lowered the declared counts lately.
pub(crate) fn lowered(job: &JobView, key: &str, now: Timestamp) -> HashMap<Bucket, i32> {
    let all = read(job, now).into_iter();
    let all = all.filter(|lowered| lowered.key == key);
    all.map(|lowered| ((lowered.role, lowered.group), lowered.by))
        .collect()
}

/// The field of the job that notes what the request of this key lowers: its path, and what is to stand there.
pub(super) fn note(
    job: &JobView,
    key: &str,
    by: &HashMap<Bucket, i32>,
    now: Timestamp,
) -> (Vec<String>, Value) {
    let mut all = read(job, now);
    for ((role, group), by) in by {
        let same = |old: &&mut Lowered| old.key == key && old.role == *role && old.group == *group;
        if let Some(old) = all.iter_mut().find(same) {
            old.by += by;
            old.at = Some(Time(now));
        } else {
            all.push(Lowered {
                key: key.to_owned(),
                role: *role,
                group: group.clone(),
                by: *by,
                at: Some(Time(now)),
            });
        }
    }
    all.drain(..all.len().saturating_sub(MOST_KEPT));
    // A list of plain fields can always be written.
    let text = serde_json::to_string(&all).unwrap_or_default();
    let mut path = ["metadata", "annotations"].map(str::to_owned).to_vec();
    // Where there are none, there is nothing that one could be added to.
    if job.metadata.annotations.is_none() {
        return (path, json!({names::LOWERED_ANNOTATION: text}));
    }
    path.push(names::LOWERED_ANNOTATION.to_owned());
    (path, text.into())
}

/// What is noted of keys that have not expired. Whatever cannot be read was not written by us.
fn read(job: &JobView, now: Timestamp) -> Vec<Lowered> {
    let annotations = job.metadata.annotations.as_ref();
    let mut all: Vec<Lowered> = annotations
        .and_then(|all| serde_json::from_str(all.get(names::LOWERED_ANNOTATION)?).ok())
        .unwrap_or_default();
    all.retain(|lowered| lowered.at.as_ref().is_some_and(|at| may_return(at, now)));
    all
}
