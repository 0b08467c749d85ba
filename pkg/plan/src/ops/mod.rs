//! Changes of the plan. An entry is added before its pod is created, and dropped after its pod and
//! service are deleted.

mod adoption;
mod declared;
mod learner_groups;
mod name_allocator;
mod replacement;
mod requested;
mod scale_down;
mod status_size;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use di_api::{EntryState, PlanEntry};

pub use adoption::adopt;
pub use declared::sync_declared;
pub use learner_groups::{
    aggregator_of, entry_kind, group_members, is_group_complete, is_ready, plan_ddp_learners,
    propagate_to_members,
};
pub use replacement::{MAX_BACKOFF_SECONDS, next_attempt, replace};
pub use requested::{Request, entries_of_request, plan_request};
pub use scale_down::{retire_done, scale_down_declared, scale_down_order, scale_down_requested};
pub use status_size::{StatusSizeBudget, drop_failed_history, trim_history};

/// The entry with this name.
pub fn find_entry<'a>(plan: &'a [PlanEntry], name: &str) -> Option<&'a PlanEntry> {
    plan.iter().find(|entry| entry.name == name)
}

/// The entry that has the place of `name`: the entry itself while it is wanted, or else its last
/// successor.
///
/// A ddp learner has the place of its aggregator.
pub fn find_successor<'a>(plan: &'a [PlanEntry], name: &str) -> Option<&'a PlanEntry> {
    if let Some(entry) = find_entry(plan, name) {
        if let Some(aggregator) = aggregator_of(entry) {
            return find_successor(plan, aggregator);
        }
        if entry.is_wanted() {
            return Some(entry);
        }
    }
    let next = plan
        .iter()
        .find(|entry| entry.replaces.as_deref() == Some(name))?;
    find_successor(plan, &next.name)
}

/// Marks one replica for removal.
pub fn remove_entry(plan: &mut [PlanEntry], name: &str) {
    for entry in plan.iter_mut().filter(|entry| entry.name == name) {
        entry.state = EntryState::Removing;
    }
    propagate_to_members(plan);
}

/// Drops entries that are not wanted and have no objects. The entry of an aggregator stays while
/// its ddp learners have entries.
pub fn drop_deleted(plan: &mut Vec<PlanEntry>, has_objects: impl Fn(&str) -> bool) {
    let is_kept = |entry: &PlanEntry| entry.is_wanted() || has_objects(&entry.name);
    let kept_aggregators: HashSet<String> = plan
        .iter()
        .filter(|entry| is_kept(entry))
        .filter_map(|entry| aggregator_of(entry).map(str::to_owned))
        .collect();
    plan.retain(|entry| is_kept(entry) || kept_aggregators.contains(&entry.name));
}
