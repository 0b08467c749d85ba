//! Which requests lowered the declared counts, in an annotation that changes together with them: a request that comes again, because its
//! second write failed, must not lower them twice.

use std::collections::HashMap;

use di_api::{Role, names};
use di_cache::JobView;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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
pub(crate) fn lowered(job: &JobView, key: &str) -> HashMap<Bucket, i32> {
    let all = read(job).into_iter().filter(|lowered| lowered.key == key);
    all.map(|lowered| ((lowered.role, lowered.group), lowered.by))
        .collect()
}

/// The field of the job that notes what the request of this key lowers: its path, and what is to stand there.
pub(super) fn note(job: &JobView, key: &str, by: &HashMap<Bucket, i32>) -> (Vec<String>, Value) {
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

/// Whatever cannot be read was not written by us.
fn read(job: &JobView) -> Vec<Lowered> {
    let annotations = job.metadata.annotations.as_ref();
    annotations
        .and_then(|all| serde_json::from_str(all.get(names::LOWERED_ANNOTATION)?).ok())
        .unwrap_or_default()
}
