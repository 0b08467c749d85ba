//! Gangs: the coordinator and the first declared replicas, the floor, start together or not at all.
//! The other pods, the overflow, are created once all of these have had nodes.
//! See docs/decisions/0038.

mod lookup;
mod problems;

use std::collections::BTreeSet;

use di_api::{DIJobStatus, Phase, PlanEntry, SchedulingStatus, names};
use di_cache::OptionalApi;
use di_plan::{GangScheduler, PodPhase, PodView, group_name, leave_group_patch};
use kube::ResourceExt;

use self::lookup::{
    find_floor, find_group, floor_pods, has_gang, has_pods_inside, is_own, is_placed, runs_on_node,
};
pub(super) use self::problems::{gang_warning, waiting_problem};
use super::{
    observed::Observed,
    outcome::{Action, EventRecord, Step},
    phase::has_started,
};

/// Which replicas may be created.
#[derive(Debug)]
pub(super) struct GangGate<'a> {
    floor: BTreeSet<&'a str>,
    floor_is_open: bool,
    overflow_is_open: bool,
}

impl GangGate<'_> {
    /// The gate of a job without a gang.
    const OPEN: Self = Self {
        floor: BTreeSet::new(),
        floor_is_open: true,
        overflow_is_open: true,
    };

    /// Returns true if the scheduler places the pod of an entry only together with others.
    pub(super) fn starts_together(&self, entry: &PlanEntry) -> bool {
        !self.overflow_is_open && self.floor.contains(&*entry.name)
    }

    /// Returns true if the pod of an entry may be created.
    pub(super) fn may_create(&self, entry: &PlanEntry) -> bool {
        if self.floor.contains(&*entry.name) {
            self.floor_is_open
        } else {
            self.overflow_is_open
        }
    }
}

/// Updates the gang in the status, and its group. Drops the creation of the coordinator until the
/// group exists. Returns which replicas may be created.
pub(super) fn reconcile_gang<'a>(
    observed: &Observed,
    plan: &'a [PlanEntry],
    step: &mut Step,
) -> GangGate<'a> {
    let had_gang = step.status.scheduling.is_some();
    let gate = if has_gang(observed, &step.status, plan) {
        update_gang(observed, plan, step)
    } else {
        remove_gang(observed, plan, step);
        GangGate::OPEN
    };
    if step.status.scheduling.is_some() != had_gang {
        verify_pods(observed, step);
    }
    gate
}

/// Requests live reads of the pods that the cache lacks. Whether a job gets or keeps a gang depends
/// on its pods, and a create without response may have succeeded.
fn verify_pods(observed: &Observed, step: &mut Step) {
    // A new job has no pods, and a lost status is planned from the listed pods. The pods of a
    // stopped job were verified when it stopped.
    let Some(stored) = observed.job.status.as_ref() else {
        return;
    };
    if matches!(stored.phase, Some(Phase::Suspended | Phase::Queued)) {
        return;
    }
    let coordinator = names::coordinator_name(&observed.job.name_any());
    let planned = stored.plan.iter().map(|entry| entry.name.clone());
    let is_unverified =
        |name: &String| observed.own_pod(name).is_none() && !observed.live_reads.contains_key(name);
    let unverified = planned.chain([coordinator]).filter(is_unverified);
    step.needs_live_read.extend(unverified);
}

/// Lets the job run without a gang.
fn remove_gang(observed: &Observed, plan: &[PlanEntry], step: &mut Step) {
    warn_without_gang(observed, plan, step);
    step.status.scheduling = None;
    // The group of an earlier start is left if its API was not served when the job stopped.
    if !has_pods_inside(observed) {
        delete_groups(observed, step);
    }
}

/// Updates the gang in the status, and its group. Returns which replicas may be created.
fn update_gang<'a>(observed: &Observed, plan: &'a [PlanEntry], step: &mut Step) -> GangGate<'a> {
    let is_served = observed.gang.api == OptionalApi::Served(());
    let floor = find_floor(observed, plan);
    let known = step.status.scheduling.take();
    let known = known.or_else(|| restore_status(observed));
    step.status.scheduling = match &floor {
        Some(floor) if is_served || known.is_some() => {
            Some(next_status(observed, known, plan, floor))
        }
        _ => known,
    };
    if is_served {
        reconcile_group(observed, step);
        remove_failed_pods(observed, step);
    }
    // Until the floor is known, it is not known whether a replica belongs to it.
    let may_be_known = floor.is_some() || is_placed(&step.status);
    let floor_is_open = may_be_known && may_create_floor(observed, &step.status);
    if !floor_is_open {
        step.actions.retain(|action| !action.creates_coordinator());
    }
    GangGate {
        floor: floor.unwrap_or_default(),
        floor_is_open,
        overflow_is_open: floor_is_open && is_placed(&step.status),
    }
}

/// Returns true if the pods of the floor may be created: their group exists, or they need none.
fn may_create_floor(observed: &Observed, status: &DIJobStatus) -> bool {
    let Some(scheduling) = &status.scheduling else {
        return false;
    };
    // A scheduler may count terminating pods of the last start as placed. Those of a lost node may
    // terminate for ever.
    let is_terminating = |pod: &PodView| pod.in_gang && pod.deleting && !pod.disrupted;
    if !scheduling.placed && observed.own_pods().any(is_terminating) {
        return false;
    }
    if observed.gang.api != OptionalApi::Served(()) {
        // A gang that was placed has a group.
        return scheduling.placed;
    }
    if !needs_group(observed) {
        return true;
    }
    find_group(observed).is_some_and(|group| {
        let is_large_enough = scheduling.placed || group.min_member >= scheduling.min_member;
        // Kubernetes keeps a deleted group until its pods have ended.
        let is_usable = is_large_enough && !group.deleting || scheduling.placed;
        is_own(observed, group) && is_usable
    })
}

/// Deletes the group of a job that is suspended, waits in a queue, has ended, or runs without a
/// gang.
pub(super) fn delete_groups(observed: &Observed, step: &mut Step) {
    step.status.scheduling = None;
    if observed.gang.api != OptionalApi::Served(()) {
        return;
    }
    let groups = observed.gang.groups.iter();
    let deleted = groups.filter(|group| is_own(observed, group) && !group.deleting);
    step.actions.extend(deleted.map(Action::delete_group));
}

/// Returns the gang of a lost status from its group, if the gang was placed.
fn restore_status(observed: &Observed) -> Option<SchedulingStatus> {
    let group = find_group(observed).filter(|group| is_own(observed, group) && !group.deleting)?;
    let pods = observed.own_pods();
    let placed = pods.filter(|pod| pod.in_gang && runs_on_node(pod)).count();
    (placed >= usize::try_from(group.min_member).ok()?).then(|| SchedulingStatus {
        group: group.name.clone(),
        min_member: group.min_member,
        placed: true,
    })
}

/// Returns the gang for the status. Once placed it only shrinks, also to the pods that have nodes: a
/// gang decides about the start, and a larger one would block the replacements of lost pods.
fn next_status(
    observed: &Observed,
    known: Option<SchedulingStatus>,
    plan: &[PlanEntry],
    floor: &BTreeSet<&str>,
) -> SchedulingStatus {
    let to_i32 = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let on_nodes = floor_pods(observed, floor)
        .flatten()
        .filter(|pod| runs_on_node(pod));
    let (pod_count, on_nodes) = (to_i32(floor.len() + 1), to_i32(on_nodes.count()));
    let group = group_name(&observed.job);
    if let Some(known) = known.filter(|known| known.placed) {
        let min_member = known.min_member.min(pod_count).min(on_nodes.max(1));
        return SchedulingStatus {
            group,
            min_member,
            placed: true,
        };
    }
    // A pod that has failed had a node. It is kept until its replacement fails.
    let has_had_node = |name: &str| observed.own_pod(name).is_some_and(PodView::is_on_node);
    let coordinator = names::coordinator_name(&observed.job.name_any());
    let mut members = plan.iter().filter(|entry| floor.contains(&*entry.name));
    let placed = has_had_node(&coordinator)
        && members.all(|entry| {
            let predecessor = entry.replaces.as_deref();
            has_had_node(&entry.name) || predecessor.is_some_and(has_had_node)
        });
    SchedulingStatus {
        group,
        min_member: pod_count,
        placed,
    }
}

/// Creates the group, or changes its size.
fn reconcile_group(observed: &Observed, step: &mut Step) {
    let Some(scheduling) = step.status.scheduling.as_ref() else {
        return;
    };
    if !needs_group(observed) {
        return;
    }
    let min_member = scheduling.min_member;
    let Some(group) = find_group(observed) else {
        step.actions.push(Action::CreateGroup { min_member });
        return;
    };
    let is_larger = group.min_member > min_member;
    let is_smaller = group.min_member < min_member && !scheduling.placed;
    if is_own(observed, group) && !group.deleting && (is_larger || is_smaller) {
        step.actions.push(Action::UpdateGroup {
            name: group.name.clone(),
            uid: group.uid.clone(),
            min_member,
        });
    }
}

/// Removes failed pods, which are kept for their logs, from the group: the scheduler would count
/// them.
fn remove_failed_pods(observed: &Observed, step: &mut Step) {
    let scheduler = observed.gang.scheduler.as_ref();
    if scheduler.and_then(leave_group_patch).is_none() {
        return;
    }
    let is_kept = |pod: &&PodView| pod.in_gang && pod.phase == PodPhase::Failed && !pod.deleting;
    let kept = observed.own_pods().filter(is_kept);
    step.actions.extend(kept.map(Action::leave_group));
}

/// Returns true if the scheduler knows a gang by an object.
fn needs_group(observed: &Observed) -> bool {
    let scheduler = observed.gang.scheduler.as_ref();
    scheduler.and_then(GangScheduler::group_kind).is_some()
}

/// Warns once, at the start of a job or when it loses its gang.
fn warn_without_gang(observed: &Observed, plan: &[PlanEntry], step: &mut Step) {
    let Some((reason, message)) = gang_warning(observed, &step.status, plan) else {
        return;
    };
    let is_new = observed.job.status.as_ref().is_none_or(|old| {
        let is_paused = matches!(old.phase, Some(Phase::Suspended | Phase::Queued));
        old.scheduling.is_some() || is_paused || !has_started(old)
    });
    if is_new {
        step.events.push(EventRecord::warning(reason, message));
    }
}
