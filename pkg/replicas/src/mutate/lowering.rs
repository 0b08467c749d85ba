//! Which requests lowered the declared counts, in an annotation that changes together with them: a request that comes again, because its
//! second write failed, must not lower them twice.

use std::collections::{BTreeMap, HashMap};

use di_api::{DIJob, Role, names};
use serde::{Deserialize, Serialize};

use super::Bucket;

/// Counts that are kept, of all requests.
const MOST_KEPT: usize = 64;

#[derive(Serialize, Deserialize)]
struct Lowered {
    key: String,
    role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    by: i32,
}

/// By how much the request of this key has lowered the declared counts.
pub(crate) fn lowered(job: &DIJob, key: &str) -> HashMap<Bucket, i32> {
    let all = read(job).into_iter().filter(|lowered| lowered.key == key);
    all.map(|lowered| ((lowered.role, lowered.group), lowered.by))
        .collect()
}

/// The job's annotations with what the request of this key lowers.
pub(super) fn note(job: &DIJob, key: &str, by: &HashMap<Bucket, i32>) -> BTreeMap<String, String> {
    let mut all = read(job);
    for ((role, group), by) in by {
        let same = |old: &&mut Lowered| old.key == key && old.role == *role && old.group == *group;
        if let Some(old) = all.iter_mut().find(same) {
            old.by += by;
        } else {
            all.push(Lowered {
                key: key.to_owned(),
                role: *role,
                group: group.clone(),
                by: *by,
            });
        }
    }
    all.drain(..all.len().saturating_sub(MOST_KEPT));
    let mut annotations = job.metadata.annotations.clone().unwrap_or_default();
    // A list of plain fields can always be written.
    let text = serde_json::to_string(&all).unwrap_or_default();
    annotations.insert(names::LOWERED_ANNOTATION.to_owned(), text);
    annotations
}

/// Whatever cannot be read was not written by us.
fn read(job: &DIJob) -> Vec<Lowered> {
    let annotations = job.metadata.annotations.as_ref();
    annotations
        .and_then(|all| serde_json::from_str(all.get(names::LOWERED_ANNOTATION)?).ok())
        .unwrap_or_default()
}
