use std::collections::HashSet;

use di_api::{EntryState, PlanEntry};

use super::{learner_groups::propagate_to_members, lookup::leader_of};

/// Marks one replica for removal.
pub fn remove_entry(plan: &mut [PlanEntry], name: &str) {
    for entry in plan.iter_mut().filter(|entry| entry.name == name) {
        entry.state = EntryState::Removing;
    }
    propagate_to_members(plan);
}

/// Drops entries that are not wanted and have no pod. The entry of an aggregator or leader stays while
/// the entries that follow it stay.
pub fn drop_deleted(plan: &mut Vec<PlanEntry>, has_pod: impl Fn(&str) -> bool) {
    let is_kept = |entry: &PlanEntry| entry.is_wanted() || has_pod(&entry.name);
    let kept_leaders: HashSet<String> = plan
        .iter()
        .filter(|entry| is_kept(entry))
        .filter_map(|entry| leader_of(entry).map(str::to_owned))
        .collect();
    plan.retain(|entry| is_kept(entry) || kept_leaders.contains(&entry.name));
}
