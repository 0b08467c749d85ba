//! Who goes when fewer are wanted.

use std::collections::HashSet;

use di_api::{EntryState, Origin, PlanEntry, Role};

use super::{follow, is_ready, members};
use crate::view::PodView;

/// Marks as Removing all but `keep` of the wanted entries that `of` selects. Returns the names marked.
pub(super) fn mark_surplus(
    plan: &mut [PlanEntry],
    pods: &[PodView],
    of: impl Fn(&PlanEntry) -> bool,
    keep: usize,
) -> Vec<String> {
    let count = plan.iter().filter(|e| e.is_wanted() && of(e)).count();
    if count <= keep {
        return Vec::new();
    }
    let wanted = victims(plan, pods, of);
    let surplus = wanted.len() - keep;
    let marked = wanted
        .into_iter()
        .take(surplus)
        .map(|i| {
            plan[i].state = EntryState::Removing;
            plan[i].name.clone()
        })
        .collect();
    follow(plan);
    marked
}

/// Marks as Removing those of the wanted entries that `of` selects which `named` names, until `keep` are left.
pub(super) fn mark_named(
    plan: &mut [PlanEntry],
    named: &[&str],
    of: impl Fn(&PlanEntry) -> bool,
    keep: usize,
) {
    let wanted = |entry: &PlanEntry| entry.is_wanted() && of(entry);
    let surplus = plan.iter().filter(|e| wanted(e)).count();
    let surplus = surplus.saturating_sub(keep);
    if surplus == 0 || named.is_empty() {
        return;
    }
    let chosen = plan
        .iter_mut()
        .filter(|entry| wanted(entry) && named.contains(&entry.name.as_str()));
    for entry in chosen.take(surplus) {
        entry.state = EntryState::Removing;
    }
    follow(plan);
}

/// Lets go of requested replicas that have done their work, the oldest first and units whole, until `is_enough`: nobody takes them up again.
/// They are kept for their logs while fewer others are.
pub fn release_done(plan: &mut [PlanEntry], is_enough: impl Fn(&[PlanEntry]) -> bool) {
    if is_enough(plan) {
        return;
    }
    for i in 0..plan.len() {
        let entry = &plan[i];
        let is_over = entry.is_wanted() && entry.done && entry.origin == Origin::Requested;
        let leads = entry.role != Role::DdpLearner;
        if is_over && leads && members(plan, &entry.name).all(|member| member.done) {
            plan[i].state = EntryState::Replaced;
            follow(plan);
            if is_enough(plan) {
                return;
            }
        }
    }
}

/// Positions of the wanted entries that `of` selects, in the order in which they would go.
pub fn victims(
    plan: &[PlanEntry],
    pods: &[PodView],
    of: impl Fn(&PlanEntry) -> bool,
) -> Vec<usize> {
    let mut wanted: Vec<usize> = (0..plan.len())
        .filter(|&i| plan[i].is_wanted() && of(&plan[i]))
        .collect();
    let ready = pods.iter().filter(|pod| pod.ready && !pod.deleting);
    let ready: HashSet<&str> = ready.map(|pod| pod.name.as_str()).collect();
    wanted.sort_by_cached_key(|&i| rank(plan, i, &ready));
    wanted
}

/// Who goes first: those not ready, then the newest.
fn rank(plan: &[PlanEntry], position: usize, ready: &HashSet<&str>) -> impl Ord + use<> {
    let entry = &plan[position];
    let ready = is_ready(plan, entry, |name| ready.contains(name));
    let planned = entry.planned_at.as_ref().map(|time| time.0);
    (ready, std::cmp::Reverse((planned, position)))
}

/// Lets go of `count` Requested replicas of a role (aggregators are learners), or of as many as there are. Returns the names.
pub fn release(plan: &mut [PlanEntry], pods: &[PodView], role: Role, count: usize) -> Vec<String> {
    release_of(Origin::Requested, plan, pods, role, count)
}

/// Lets go of `count` Declared replicas of a role, of whichever group or none, or of as many as there are; the caller lowers the declared
/// counts in the same operation. Returns the names.
pub fn release_declared(
    plan: &mut [PlanEntry],
    pods: &[PodView],
    role: Role,
    count: usize,
) -> Vec<String> {
    release_of(Origin::Declared, plan, pods, role, count)
}

fn release_of(
    origin: Origin,
    plan: &mut [PlanEntry],
    pods: &[PodView],
    role: Role,
    count: usize,
) -> Vec<String> {
    let of = |e: &PlanEntry| e.role.counted_as() == role && e.origin == origin;
    let have = plan.iter().filter(|e| e.is_wanted() && of(e)).count();
    mark_surplus(plan, pods, of, have.saturating_sub(count))
}
