//! The quota that was admitted for the whole job, and its shares.

use std::collections::{BTreeMap, HashMap, HashSet};

use di_api::{Origin, Placement, PlanEntry, QueueState, QueueingStatus, Role};
use di_plan::{PodView, WorkloadView, patch_reclaimable, pod_set_name, wanted_members};

use super::{
    super::{
        learner_groups::{group_owner, group_owner_entry},
        observed::Observed,
        outcome::{Action, Step},
    },
    drafts::{Templates, entries_of_owner},
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
    let is_active = |entry: &&PlanEntry| {
        let pod = observed.own_pod(&entry.name);
        is_in_base(plan, entry) && pod.is_some_and(PodView::is_active)
    };
    let wanted = count_pod_sets(queueing, members_with_quota(plan).into_iter());
    let active = count_pod_sets(queueing, plan.iter().filter(is_active));
    // The replicas of a lost status, and those without a placement yet, get theirs first; also the
    // ddp learners that are not planned until the nodes are known.
    let all_have_quota = || {
        plan.iter()
            .filter(|entry| needs_quota(plan, entry))
            .all(|owner| {
                let entries = entries_of_owner(plan, owner);
                let have_placements =
                    |entries: Vec<&PlanEntry>| entries.iter().all(|e| e.placement.is_some());
                owner.queue.is_some() || entries.is_some_and(have_placements)
            })
    };
    let may_reclaim = !has_unknown_pod(observed, plan) && all_have_quota();
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
        if may_reclaim {
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

/// Takes the quota from replicas without a pod whose pods need other quota by now.
pub(super) fn clear_outdated_quota(
    observed: &Observed,
    plan: &mut [PlanEntry],
    queueing: &QueueingStatus,
    templates: &Templates,
) {
    let is_outdated = |entry: &&PlanEntry| {
        let has_pod = entry.uid.is_some() || observed.own_pod(&entry.name).is_some();
        let placement = placement_of(queueing, entry).filter(|_| !has_pod && entry.is_wanted());
        placement.is_some_and(|placement| !suits_entry(placement, entry, templates))
    };
    let outdated: Vec<_> = plan.iter().filter(is_outdated).collect();
    let owners = outdated.iter().map(|entry| group_owner_entry(plan, entry));
    let owners: HashSet<String> = owners.map(|owner| owner.name.clone()).collect();
    let outdated: HashSet<String> = outdated.iter().map(|entry| entry.name.clone()).collect();
    for entry in plan.iter_mut() {
        if outdated.contains(&entry.name) {
            entry.placement = None;
        }
        if owners.contains(&entry.name) && entry.queue.is_some() {
            entry.queue = Some(QueueState::Waiting);
        }
    }
}

/// Whether the quota of a placement suits the pod of an entry.
fn suits_entry(placement: &Placement, entry: &PlanEntry, templates: &Templates) -> bool {
    let name = pod_set_name(entry);
    let template = templates.get(&name);
    placement.pod_set == name && template.is_none_or(|template| *template == placement.template)
}

/// Gives replicas without quota that of the whole job, as far as it goes.
pub(super) fn share_base_quota(
    plan: &mut [PlanEntry],
    queueing: &QueueingStatus,
    base: &WorkloadView,
    templates: &Templates,
) {
    let members = members_with_quota(plan);
    let used = count_pod_sets(queueing, members.iter().copied());
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
    let pending = members.iter().filter(|entry| entry.uid.is_none());
    let pending: HashSet<String> = pending.map(|entry| entry.name.clone()).collect();
    for entry in plan.iter_mut().rev() {
        // A replica that was done has returned its quota, so its replacement needs other quota.
        let pod_set = placement_of(queueing, entry).map(|placement| placement.pod_set.as_str());
        if pending.contains(&entry.name)
            && let Some(free) = pod_set.and_then(|name| free.get_mut(name))
            && *free < 0
        {
            entry.placement = None;
            *free += 1;
        }
    }
    // Declared replicas come first: the quota was requested for them.
    let mut owners: Vec<usize> = (0..plan.len())
        .filter(|i| needs_quota(plan, &plan[*i]))
        .collect();
    owners.sort_by_key(|i| plan[*i].origin == Origin::Requested);
    for i in owners {
        if plan[i].queue.is_some() {
            continue;
        }
        let Some(entries) = entries_of_owner(plan, &plan[i]) else {
            continue;
        };
        let missing = entries.iter().filter(|entry| entry.placement.is_none());
        // A pod that exists, of a lost status, has the template that was admitted.
        let position = |entry: &PlanEntry| {
            let mut all = queueing.placements.iter().take(count_base_placements(base));
            let has_pod = entry.uid.is_some();
            all.position(|placement| {
                let is_same = placement.pod_set == pod_set_name(entry);
                is_same && (has_pod || suits_entry(placement, entry, templates))
            })
        };
        let positions: Option<HashMap<_, _>> = missing
            .map(|entry| Some((entry.name.clone(), position(entry)?)))
            .collect();
        let Some(positions) = positions.filter(|positions| !positions.is_empty()) else {
            continue;
        };
        let mut remaining = free.clone();
        let fits = positions.values().all(|i| {
            let free = remaining.get_mut(queueing.placements[*i].pod_set.as_str());
            free.is_some_and(|free| {
                *free -= 1;
                *free >= 0
            })
        });
        if !fits {
            continue;
        }
        free = remaining;
        for entry in plan.iter_mut() {
            if let Some(i) = positions.get(&entry.name) {
                entry.placement = i32::try_from(*i).ok();
            }
        }
    }
}

/// Gives the members of a replaced learner group or unit their placement while Kueue cannot be used,
/// so that an admitted job continues.
pub(super) fn assign_without_kueue(plan: &mut [PlanEntry], queueing: &QueueingStatus) {
    for i in 0..plan.len() {
        let entry = &plan[i];
        let lacks_placement = entry.is_wanted() && entry.placement.is_none();
        if !entry.is_replica() && lacks_placement && group_owner_entry(plan, entry).queue.is_none()
        {
            let name = pod_set_name(entry);
            let mut all = queueing.placements.iter();
            let position = all.position(|placement| placement.pod_set == name);
            plan[i].placement = position.and_then(|position| i32::try_from(position).ok());
        }
    }
}

/// Whether an entry represents a replica that the job wants and that is not done.
pub(super) fn needs_quota(plan: &[PlanEntry], entry: &PlanEntry) -> bool {
    let is_done = || {
        let mut members = wanted_members(plan, &entry.name);
        entry.done && (!entry.leads_group() || members.all(|member| member.done))
    };
    entry.is_wanted() && entry.is_replica() && !is_done()
}

/// Entries that the job wants with quota of the whole job. A learner group keeps its quota until
/// all of its entries are done, because it is replaced as a whole.
fn members_with_quota(plan: &[PlanEntry]) -> Vec<&PlanEntry> {
    let wanted = || plan.iter().filter(|entry| entry.is_wanted());
    let unfinished: HashSet<&str> = wanted()
        .filter(|entry| !entry.done)
        .map(group_owner)
        .collect();
    wanted()
        .filter(|entry| is_in_base(plan, entry) && unfinished.contains(group_owner(entry)))
        .collect()
}

/// Whether an entry uses quota of the whole job.
fn is_in_base(plan: &[PlanEntry], entry: &PlanEntry) -> bool {
    entry.placement.is_some() && group_owner_entry(plan, entry).queue.is_none()
}

/// Whether the quota that a pod uses is unknown: its plan entry was lost with the status, or its
/// placement was cleared by a suspension that the user took back.
pub(super) fn has_unknown_pod(observed: &Observed, plan: &[PlanEntry]) -> bool {
    let with_quota = plan.iter().filter(|entry| entry.placement.is_some());
    let with_quota: HashSet<&str> = with_quota.map(|entry| entry.name.as_str()).collect();
    let is_replica = |pod: &&PodView| pod.role != Some(Role::Coordinator);
    let mut replicas = observed.own_pods().filter(is_replica);
    replicas.any(|pod| pod.is_active() && !with_quota.contains(pod.name.as_str()))
}

/// Number of the placements of the whole job. They come before those of single replicas.
pub(super) fn count_base_placements(base: &WorkloadView) -> usize {
    let admission = base.admission.as_ref();
    admission.map_or(0, |admission| admission.pod_set_assignments.len())
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
