//! Selects the replicas to remove when the number of replicas decreases.

use std::collections::HashSet;

use di_api::{EntryState, Origin, PlanEntry, QueueState, Role};

use super::{
    learner_groups::{is_ready, propagate_to_members},
    lookup::wanted_members,
};
use crate::view::PodView;

/// Marks all but `keep` of the wanted entries that `is_selected` accepts as Removing. Returns the
/// names of the marked entries.
pub(super) fn mark_excess(
    plan: &mut [PlanEntry],
    pods: &[PodView],
    is_selected: impl Fn(&PlanEntry) -> bool,
    keep: usize,
) -> Vec<String> {
    let count = plan
        .iter()
        .filter(|e| e.is_wanted() && is_selected(e))
        .count();
    if count <= keep {
        return Vec::new();
    }
    let ordered = scale_down_order(plan, pods, is_selected);
    let excess = ordered.len() - keep;
    let marked = ordered
        .into_iter()
        .take(excess)
        .map(|i| {
            plan[i].state = EntryState::Removing;
            plan[i].name.clone()
        })
        .collect();
    propagate_to_members(plan);
    marked
}

/// Marks the entries in `named` (from the annotation of the job) as Removing, until `keep` of the wanted entries that `is_selected`
/// accepts are left.
pub(super) fn mark_named(
    plan: &mut [PlanEntry],
    named: &[&str],
    is_selected: impl Fn(&PlanEntry) -> bool,
    keep: usize,
) {
    let is_candidate = |entry: &PlanEntry| entry.is_wanted() && is_selected(entry);
    let count = plan.iter().filter(|e| is_candidate(e)).count();
    let excess = count.saturating_sub(keep);
    if excess == 0 || named.is_empty() {
        return;
    }
    let chosen = plan
        .iter_mut()
        .filter(|entry| is_candidate(entry) && named.contains(&entry.name.as_str()));
    for entry in chosen.take(excess) {
        entry.state = EntryState::Removing;
    }
    propagate_to_members(plan);
}

/// Retires requested replicas that have completed, the oldest first, until `is_enough` returns
/// true.
///
/// Units and learner groups are retired as a whole. The pods are kept for their logs, within the
/// limit of the history.
pub fn retire_done(plan: &mut [PlanEntry], is_enough: impl Fn(&[PlanEntry]) -> bool) {
    if is_enough(plan) {
        return;
    }
    for i in 0..plan.len() {
        let entry = &plan[i];
        let is_done = entry.is_wanted() && entry.done && entry.origin == Origin::Requested;
        let members_are_done = || wanted_members(plan, &entry.name).all(|member| member.done);
        if is_done && entry.is_replica() && members_are_done() {
            plan[i].state = EntryState::Replaced;
            propagate_to_members(plan);
            if is_enough(plan) {
                return;
            }
        }
    }
}

/// Positions of the wanted entries that `is_selected` accepts, in the order of their removal. The
/// pods that the annotation of the job names are already marked by [`mark_named`]; they go first.
pub fn scale_down_order(
    plan: &[PlanEntry],
    pods: &[PodView],
    is_selected: impl Fn(&PlanEntry) -> bool,
) -> Vec<usize> {
    let mut wanted: Vec<usize> = (0..plan.len())
        .filter(|&i| plan[i].is_wanted() && is_selected(&plan[i]))
        .collect();
    let ready = pods.iter().filter(|pod| pod.ready && !pod.deleting);
    let ready: HashSet<&str> = ready.map(|pod| pod.name.as_str()).collect();
    wanted.sort_by_cached_key(|&i| scale_down_rank(plan, i, &ready));
    wanted
}

/// Sort key of the scale-down order: after the pods that the annotation names (see [`mark_named`]),
/// replicas that wait for quota, then those that are not ready, then the newest.
fn scale_down_rank(plan: &[PlanEntry], position: usize, ready: &HashSet<&str>) -> impl Ord + use<> {
    let entry = &plan[position];
    // The pod of a preempted replica may be ready until it ends.
    let has_quota = entry.queue != Some(QueueState::Waiting);
    let ready = is_ready(plan, entry, |name| ready.contains(name));
    let planned = entry.planned_at.as_ref().map(|time| time.0);
    (has_quota, ready, std::cmp::Reverse((planned, position)))
}

/// Removes up to `count` requested replicas of a role. Returns their names.
///
/// Aggregators count as learners.
pub fn scale_down_requested(
    plan: &mut [PlanEntry],
    pods: &[PodView],
    role: Role,
    count: usize,
) -> Vec<String> {
    scale_down_origin(Origin::Requested, plan, pods, role, count)
}

/// Removes up to `count` declared replicas of a role, of any group. Returns their names.
///
/// The caller must lower the declared counts of the spec in the same operation.
pub fn scale_down_declared(
    plan: &mut [PlanEntry],
    pods: &[PodView],
    role: Role,
    count: usize,
) -> Vec<String> {
    scale_down_origin(Origin::Declared, plan, pods, role, count)
}

fn scale_down_origin(
    origin: Origin,
    plan: &mut [PlanEntry],
    pods: &[PodView],
    role: Role,
    count: usize,
) -> Vec<String> {
    let is_selected = |e: &PlanEntry| e.counts_as(role) && e.origin == origin;
    let existing = plan
        .iter()
        .filter(|e| e.is_wanted() && is_selected(e))
        .count();
    mark_excess(plan, pods, is_selected, existing.saturating_sub(count))
}

#[cfg(test)]
mod tests {
    use di_fixtures::Pod;

    use super::*;

    #[test]
    fn waiting_replicas_are_removed_first() {
        let entry = |name: &str, origin, queue| PlanEntry {
            queue,
            ..PlanEntry::new(name.to_owned(), Role::Collector, origin, 0)
        };
        let waiting = Some(QueueState::Waiting);
        let mut plan = vec![
            entry("preempted", Origin::Requested, waiting),
            entry("waiting", Origin::Requested, waiting),
            entry("admitted", Origin::Requested, Some(QueueState::Admitted)),
            entry("base", Origin::Declared, None),
            entry("added", Origin::Declared, waiting),
            entry("newest", Origin::Declared, None),
        ];
        // The only pod that is ready is about to end.
        let pod = Pod::test("preempted", "collector").phase("Running");
        let pods = [PodView::new(&pod.build()).unwrap()];
        let mut remove =
            |origin, count| scale_down_origin(origin, &mut plan, &pods, Role::Collector, count);
        assert_eq!(remove(Origin::Requested, 2), ["waiting", "preempted"]);
        assert_eq!(remove(Origin::Requested, 1), ["admitted"]);
        assert_eq!(remove(Origin::Declared, 2), ["added", "newest"]);
    }
}
