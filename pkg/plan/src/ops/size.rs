//! How large a plan becomes: it stands in the status of its job, and etcd takes [no more than 1.5 MiB](https://etcd.io/docs/v3.5/dev-guide/limit/)
//! at once.

use std::collections::HashMap;

use di_api::{EntryState, PlanEntry};

use super::{follow, members};

/// Of a job, so many replicas that are replaced are kept for their logs: the last.
const MOST_KEPT: usize = 100;
/// What a plan takes of an object; the rest is for the spec, and what else its metadata and status have.
const MOST_BYTES: usize = 1400 << 10;
/// What a replacement has beyond what the replica has whose place it takes.
const REPLACES_BYTES: usize = 150;

/// Has entries that are let go of say no more than whose they are, and lets go of all but the last of those that are kept for their logs.
pub fn shorten(plan: &mut [PlanEntry]) {
    if plan.iter().all(PlanEntry::is_wanted) {
        return;
    }
    // Who was replaced last has the last successor. One that has none was let go of as it was done.
    let successors: HashMap<_, _> = plan
        .iter()
        .enumerate()
        .filter_map(|(i, entry)| Some((entry.replaces.clone()?, i)))
        .collect();
    let is_kept = |i: &usize| plan[*i].state == EntryState::Replaced;
    let mut kept: Vec<_> = (0..plan.len()).filter(is_kept).collect();
    kept.sort_by_key(|i| successors.get(&plan[*i].name).copied());
    let surplus = kept.len().saturating_sub(MOST_KEPT);
    for i in &kept[..surplus] {
        plan[*i].state = EntryState::Removing;
    }
    follow(plan);
    for entry in plan.iter_mut().filter(|entry| !entry.is_wanted()) {
        (entry.claimed_by, entry.request_key) = (None, None);
        (entry.attempt, entry.not_before) = (0, None);
    }
}

/// The room that a plan has for replacements. What has none waits until some of those that are let go of are gone.
#[derive(Debug)]
pub struct Room(usize);

impl Room {
    /// That of a plan.
    pub fn of(plan: &[PlanEntry]) -> Self {
        Self(MOST_BYTES.saturating_sub(plan.iter().map(bytes).sum()))
    }

    /// Takes what the replacement of a replica needs, with all of its unit, if there is as much.
    pub fn take(&mut self, plan: &[PlanEntry], entry: &PlanEntry) -> bool {
        let unit = members(plan, &entry.name).chain([entry]);
        let needed = unit.map(|entry| bytes(entry) + REPLACES_BYTES).sum();
        let left = self.0.checked_sub(needed);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// How many an entry takes, and the comma after it.
fn bytes(entry: &PlanEntry) -> usize {
    serde_json::to_vec(entry).map_or(0, |json| json.len() + 1)
}
