//! Changes of the plan. A name enters it before its pod is made, and leaves it after its pod and service are gone.

mod adoption;
mod declared;
mod replacement;
mod requested;
mod size;
mod slots;
#[cfg(test)]
mod tests;
mod units;
mod victims;

use std::collections::HashSet;

use di_api::{EntryState, PlanEntry};

pub use adoption::adopt;
pub use declared::declare;
pub use replacement::{LONGEST_BACKOFF_SECONDS, next_attempt, replace};
pub use requested::{Request, planned_for, request};
pub use size::{Room, forgo_logs, shorten};
pub use units::{aggregator_of, expand, follow, is_ready, is_whole, members, planned_as};
pub use victims::{release, release_declared, release_done, victims};

/// The entry of this name.
pub fn find<'a>(plan: &'a [PlanEntry], name: &str) -> Option<&'a PlanEntry> {
    plan.iter().find(|entry| entry.name == name)
}

/// The replica that holds the place of `name` now: itself while it is wanted, else the last that replaced it. A ddp learner's place is that of
/// its aggregator.
pub fn successor<'a>(plan: &'a [PlanEntry], name: &str) -> Option<&'a PlanEntry> {
    if let Some(entry) = find(plan, name) {
        if let Some(aggregator) = aggregator_of(entry) {
            return successor(plan, aggregator);
        }
        if entry.is_wanted() {
            return Some(entry);
        }
    }
    let next = plan
        .iter()
        .find(|entry| entry.replaces.as_deref() == Some(name))?;
    successor(plan, &next.name)
}

/// Lets go of one replica.
pub fn remove(plan: &mut [PlanEntry], name: &str) {
    for entry in plan.iter_mut().filter(|entry| entry.name == name) {
        entry.state = EntryState::Removing;
    }
    follow(plan);
}

/// Drops entries that are let go of and of which nothing is left; an aggregator's stays as long as those of its ddp learners.
pub fn drop_gone(plan: &mut Vec<PlanEntry>, is_there: impl Fn(&str) -> bool) {
    let stays = |entry: &PlanEntry| entry.is_wanted() || is_there(&entry.name);
    let led: HashSet<String> = plan
        .iter()
        .filter(|entry| stays(entry))
        .filter_map(|entry| aggregator_of(entry).map(str::to_owned))
        .collect();
    plan.retain(|entry| stays(entry) || led.contains(&entry.name));
}
