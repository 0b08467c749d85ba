//! Limits the size of the status, which contains the plan: etcd accepts requests up to
//! [1.5 MiB](https://etcd.io/docs/v3.5/dev-guide/limit/).

use std::collections::HashMap;

use di_api::{DIJob, EntryState, PlanEntry};

use super::{learner_groups::propagate_to_members, lookup::group_members};

/// Number of replaced replicas of a job that are kept for their logs.
const MAX_HISTORY: usize = 100;
/// Size limit of a job as JSON. The rest of the 1.5 MiB is for managed fields, which are not
/// cached.
const MAX_JOB_BYTES: usize = 1420 << 10;
/// Size limit of `status.failures` as JSON.
pub const MAX_FAILURES_BYTES: usize = 24 << 10;
/// Size of the fields that a replacement has in addition to those of the replaced entry.
const REPLACEMENT_EXTRA_BYTES: usize = 150;

/// Clears fields of entries that are not wanted, and removes all but the last [`MAX_HISTORY`]
/// replaced replicas.
pub fn trim_history(plan: &mut [PlanEntry]) {
    if plan.iter().all(PlanEntry::is_wanted) {
        return;
    }
    retain_history(plan, MAX_HISTORY);
    for entry in plan.iter_mut().filter(|entry| !entry.is_wanted()) {
        (entry.claimed_by, entry.request_key) = (None, None);
        (entry.attempt, entry.not_before) = (0, None);
        entry.rule_matches.clear();
        entry.memory = None;
    }
}

/// Removes all replaced replicas that are kept for their logs, to make space for active replicas.
pub fn drop_failed_history(plan: &mut [PlanEntry]) {
    retain_history(plan, 0);
}

fn retain_history(plan: &mut [PlanEntry], max: usize) {
    // The last replaced replica has the last successor. A completed replica has no successor.
    let successors: HashMap<_, _> = plan
        .iter()
        .enumerate()
        .filter_map(|(i, entry)| Some((entry.replaces.clone()?, i)))
        .collect();
    let is_kept = |i: &usize| plan[*i].state == EntryState::Replaced;
    let mut kept: Vec<_> = (0..plan.len()).filter(is_kept).collect();
    kept.sort_by_key(|i| successors.get(&plan[*i].name).copied());
    let excess = kept.len().saturating_sub(max);
    for i in &kept[..excess] {
        plan[*i].state = EntryState::Removing;
    }
    propagate_to_members(plan);
}

/// The bytes that are left in the status for replacements.
///
/// A replacement that does not fit waits until removed entries are dropped.
#[derive(Debug)]
pub struct StatusSizeBudget(usize);

impl StatusSizeBudget {
    /// The budget of a job with this plan instead of the plan in its status.
    pub fn for_job(job: &DIJob, plan: &[PlanEntry]) -> Self {
        let mut rest = job.clone();
        if let Some(status) = &mut rest.status {
            status.plan.clear();
            status.failures.clear();
        }
        let rest = serde_json::to_vec(&rest).map_or(0, |json| json.len()) + MAX_FAILURES_BYTES;
        let used: usize = plan.iter().map(json_size).sum();
        Self(MAX_JOB_BYTES.saturating_sub(rest + used))
    }

    /// Reserves the bytes for the replacement of a replica and its learner group. Returns `false`
    /// if they do not fit.
    pub fn reserve_replacement(&mut self, plan: &[PlanEntry], entry: &PlanEntry) -> bool {
        let group = group_members(plan, &entry.name).chain([entry]);
        let needed = group
            .map(|entry| json_size(entry) + REPLACEMENT_EXTRA_BYTES)
            .sum();
        let left = self.0.checked_sub(needed);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// Size of an entry as JSON, with the comma after it.
fn json_size(entry: &PlanEntry) -> usize {
    serde_json::to_vec(entry).map_or(0, |json| json.len() + 1)
}
