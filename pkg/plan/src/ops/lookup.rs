//! Finds entries of a plan.

use di_api::PlanEntry;

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

/// The entries of the ddp learners of an aggregator.
pub fn group_members<'a>(
    plan: &'a [PlanEntry],
    aggregator: &str,
) -> impl Iterator<Item = &'a PlanEntry> {
    plan.iter()
        .filter(move |entry| aggregator_of(entry) == Some(aggregator))
}

/// The name of the aggregator of a ddp learner; `None` for other entries.
pub fn aggregator_of(entry: &PlanEntry) -> Option<&str> {
    Some(entry.ddp.as_ref()?.aggregator.as_str())
}
