//! The quota that was admitted for the whole job, and its shares.

use std::collections::{BTreeMap, HashMap};

use di_api::{Origin, Placement, PlanEntry, QueueingStatus, Role};
use di_plan::{PodView, WorkloadView, patch_reclaimable, pod_set_name};

use super::{
    super::{
        learner_groups::group_owner_entry,
        observed::Observed,
        outcome::{Action, Step},
    },
    drafts::unit_entries,
};

/// Gives back the quota of replicas of the whole job that are done or removed, once their pods are
/// gone. The status has the numbers first, so that no new replica takes that quota meanwhile.
pub(super) fn reclaim_quota(
    observed: &Observed,
    plan: &[PlanEntry],
    queueing: &mut QueueingStatus,
    base: &WorkloadView,
    step: &mut Step,
) {
    let members = || plan.iter().filter(|entry| is_in_base(plan, entry));
    let is_active = |entry: &&PlanEntry| {
        observed
            .own_pod(&entry.name)
            .is_some_and(PodView::is_active)
    };
    let wanted = members().filter(|entry| entry.is_wanted() && !entry.done);
    let wanted = count_pod_sets(queueing, wanted);
    let active = count_pod_sets(queueing, members().filter(is_active));
    // The replicas of a lost status, and those without a place yet, get theirs first.
    let all_have_quota = plan.iter().all(|entry| {
        let has_quota = entry.placement.is_some() || group_owner_entry(plan, entry).queue.is_some();
        has_quota || !entry.is_wanted() || entry.done
    });
    let assignments = base
        .admission
        .iter()
        .flat_map(|all| &all.pod_set_assignments);
    let mut reclaimed = queueing.reclaimed.clone();
    for assignment in assignments.filter(|set| set.name != Role::Coordinator.label()) {
        let name = assignment.name.as_str();
        let of = |counts: &BTreeMap<&str, i32>| counts.get(name).copied().unwrap_or(0);
        let unused = assignment.count.unwrap_or(0) - of(&wanted).max(of(&active));
        let known = reclaimed.entry(name.to_owned()).or_default();
        let stored = base.reclaimable.get(name).copied().unwrap_or(0);
        *known = stored.max(*known);
        if all_have_quota {
            *known = unused.max(*known);
        }
    }
    reclaimed.retain(|_, count| *count > 0);
    if reclaimed != base.reclaimable {
        let patch = patch_reclaimable(base, &reclaimed);
        step.actions.push(Action::PatchWorkloadStatus(patch));
    }
    queueing.reclaimed = reclaimed;
}

/// Gives replicas without quota that of the whole job, as far as it goes.
pub(super) fn share_base_quota(
    plan: &mut [PlanEntry],
    queueing: &QueueingStatus,
    base: &WorkloadView,
) {
    let members = plan.iter().filter(|entry| is_in_base(plan, entry));
    let used = count_pod_sets(
        queueing,
        members.filter(|entry| entry.is_wanted() && !entry.done),
    );
    let mut free = BTreeMap::new();
    for assignment in base
        .admission
        .iter()
        .flat_map(|all| &all.pod_set_assignments)
    {
        let name = assignment.name.as_str();
        let of = |counts: &BTreeMap<&str, i32>| counts.get(name).copied().unwrap_or(0);
        let reclaimed = queueing.reclaimed.get(name).copied().unwrap_or(0);
        free.insert(name, assignment.count.unwrap_or(0) - reclaimed - of(&used));
    }
    // Declared replicas come first: the quota was requested for them.
    let mut units: Vec<usize> = (0..plan.len()).filter(|i| is_unit(&plan[*i])).collect();
    units.sort_by_key(|i| plan[*i].origin == Origin::Requested);
    for i in units {
        if plan[i].queue.is_some() {
            continue;
        }
        let Some(entries) = unit_entries(plan, &plan[i]) else {
            continue;
        };
        let missing = entries.iter().filter(|entry| entry.placement.is_none());
        let missing: Vec<_> = missing.map(|e| (e.name.clone(), pod_set_name(e))).collect();
        let mut remaining = free.clone();
        let has_place = missing.iter().all(|(_, pod_set)| {
            let free = remaining.get_mut(pod_set.as_str());
            free.is_some_and(|free| {
                *free -= 1;
                *free >= 0
            })
        });
        if !has_place {
            continue;
        }
        free = remaining;
        let position = |name: &str| {
            let mut all = queueing.placements.iter();
            all.position(|placement| placement.pod_set == name)
        };
        let missing: HashMap<_, _> = missing.into_iter().collect();
        for entry in plan.iter_mut() {
            if let Some(pod_set) = missing.get(&entry.name) {
                entry.placement = position(pod_set).and_then(|i| i32::try_from(i).ok());
            }
        }
    }
}

/// Whether an entry is a replica, or the aggregator of a learner group, that the job wants.
pub(super) fn is_unit(entry: &PlanEntry) -> bool {
    entry.is_wanted() && !entry.done && entry.role != Role::DdpLearner
}

/// Whether an entry uses quota of the whole job.
fn is_in_base(plan: &[PlanEntry], entry: &PlanEntry) -> bool {
    entry.placement.is_some() && group_owner_entry(plan, entry).queue.is_none()
}

/// Counts entries by the pod set of their placement.
fn count_pod_sets<'a>(
    queueing: &'a QueueingStatus,
    entries: impl Iterator<Item = &'a PlanEntry>,
) -> BTreeMap<&'a str, i32> {
    let mut counts = BTreeMap::new();
    for placement in entries.filter_map(|entry| placement_of(queueing, entry)) {
        *counts.entry(placement.pod_set.as_str()).or_default() += 1;
    }
    counts
}

/// The placement of an entry.
pub(super) fn placement_of<'a>(
    queueing: &'a QueueingStatus,
    entry: &PlanEntry,
) -> Option<&'a Placement> {
    queueing
        .placements
        .get(usize::try_from(entry.placement?).ok()?)
}
