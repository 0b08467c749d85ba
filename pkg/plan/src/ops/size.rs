//! How large a plan becomes: it stands in the status of its job, and etcd takes [no more than 1.5 MiB](https://etcd.io/docs/v3.5/dev-guide/limit/)
//! at once.

use std::collections::HashMap;

use di_api::{DIJob, EntryState, PlanEntry};

use super::{follow, members};

/// Of a job, so many replicas that are replaced are kept for their logs: the last.
const MOST_KEPT: usize = 100;
/// What a job takes of that, without what is not known of it here: which fields of it are whose.
const MOST_BYTES: usize = 1420 << 10;
/// What a replacement has beyond what the replica has whose place it takes.
const REPLACES_BYTES: usize = 150;

/// Has entries that are let go of say no more than whose they are, and lets go of all but the last of those that are kept for their logs.
pub fn shorten(plan: &mut [PlanEntry]) {
    if plan.iter().all(PlanEntry::is_wanted) {
        return;
    }
    keep_last(plan, MOST_KEPT);
    for entry in plan.iter_mut().filter(|entry| !entry.is_wanted()) {
        (entry.claimed_by, entry.request_key) = (None, None);
        (entry.attempt, entry.not_before) = (0, None);
    }
}

/// Lets go of all that are kept for their logs, which are worth less than a replica for which there is no room.
pub fn forgo_logs(plan: &mut [PlanEntry]) {
    keep_last(plan, 0);
}

fn keep_last(plan: &mut [PlanEntry], most: usize) {
    // Who was replaced last has the last successor. One that has none was let go of as it was done.
    let successors: HashMap<_, _> = plan
        .iter()
        .enumerate()
        .filter_map(|(i, entry)| Some((entry.replaces.clone()?, i)))
        .collect();
    let is_kept = |i: &usize| plan[*i].state == EntryState::Replaced;
    let mut kept: Vec<_> = (0..plan.len()).filter(is_kept).collect();
    kept.sort_by_key(|i| successors.get(&plan[*i].name).copied());
    let surplus = kept.len().saturating_sub(most);
    for i in &kept[..surplus] {
        plan[*i].state = EntryState::Removing;
    }
    follow(plan);
}

/// The room that a plan has for replacements. What has none waits until some of those that are let go of are gone.
#[derive(Debug)]
pub struct Room(usize);

impl Room {
    /// What a job leaves that has this plan instead of its own.
    pub fn of(job: &DIJob, plan: &[PlanEntry]) -> Self {
        let mut rest = job.clone();
        if let Some(status) = &mut rest.status {
            status.plan.clear();
        }
        let rest = serde_json::to_vec(&rest).map_or(0, |json| json.len());
        let taken: usize = plan.iter().map(bytes).sum();
        Self(MOST_BYTES.saturating_sub(rest + taken))
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
