//! Finds entries of a plan.

use di_api::PlanEntry;

/// The entry with this name.
pub fn find_entry<'a>(plan: &'a [PlanEntry], name: &str) -> Option<&'a PlanEntry> {
    plan.iter().find(|entry| entry.name == name)
}

/// The entry that has the place of `name`: the entry itself while it is wanted, or else its last
/// successor.
///
/// A ddp learner has the place of its aggregator, and any pod of a unit that of its leader.
pub fn find_successor<'a>(plan: &'a [PlanEntry], name: &str) -> Option<&'a PlanEntry> {
    if let Some(entry) = find_entry(plan, name) {
        if let Some(leader) = leader_of(entry) {
            return find_successor(plan, leader);
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

/// The entries that follow an entry: the ddp learners of an aggregator, or the other pods of the unit
/// of a leader.
pub fn group_members<'a>(
    plan: &'a [PlanEntry],
    leader: &str,
) -> impl Iterator<Item = &'a PlanEntry> {
    plan.iter()
        .filter(move |entry| leader_of(entry) == Some(leader))
}

/// Like [`group_members`], without replaced and removed entries.
pub fn wanted_members<'a>(
    plan: &'a [PlanEntry],
    leader: &str,
) -> impl Iterator<Item = &'a PlanEntry> {
    group_members(plan, leader).filter(|entry| entry.is_wanted())
}

/// The name of the entry that an entry follows: the aggregator of a ddp learner, or the leader of
/// another pod of a unit. `None` for entries that represent a replica.
pub fn leader_of(entry: &PlanEntry) -> Option<&str> {
    let aggregator = entry.ddp.as_ref().map(|place| place.aggregator.as_str());
    aggregator.or_else(|| entry.unit.as_ref()?.leader.as_deref())
}
