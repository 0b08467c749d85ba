//! Facts about the gang of a job.

use std::collections::BTreeSet;

use di_api::{DIJobStatus, Origin, PlanEntry, Role, names};
use di_cache::OptionalApi;
use di_plan::{GroupView, PodView, floor_members, gang_problem, group_name};
use kube::ResourceExt;

use super::super::observed::Observed;

pub(super) fn asks_for_gang(observed: &Observed) -> bool {
    let scheduling = observed.job.spec.scheduling.as_ref();
    scheduling.is_some_and(|scheduling| scheduling.gang.is_some())
}

/// Returns true if the job has a gang, or waits for one.
///
/// A gang that exists is kept when the spec changes, or its group cannot be used for a time, as its
/// pods know their group. A job with pods outside of a gang gets none: its group would lack these
/// pods, and never be placed.
pub(super) fn has_gang(observed: &Observed, status: &DIJobStatus, plan: &[PlanEntry]) -> bool {
    let gang = &observed.gang;
    if gang.scheduler.is_none() {
        return false;
    }
    let may_be_served = gang.api != OptionalApi::NotServed;
    if let Some(known) = &status.scheduling {
        // Pods are created after their group, so it exists.
        may_be_served || known.placed || has_pods_inside(observed)
    } else {
        let is_usable = may_be_served || has_waiting_pods_inside(observed);
        is_usable && wants_gang(observed, plan) && !has_pods_outside(observed)
    }
}

pub(super) fn has_pods_inside(observed: &Observed) -> bool {
    observed.own_pods().any(|pod| pod.in_gang)
}

/// Returns true if pods wait in the gang: without its group they would wait for ever.
fn has_waiting_pods_inside(observed: &Observed) -> bool {
    let is_waiting = |pod: &PodView| pod.in_gang && !pod.deleting && !pod.is_on_node();
    observed.own_pods().any(is_waiting)
}

fn has_pods_outside(observed: &Observed) -> bool {
    let is_outside = |pod: &PodView| !pod.in_gang && pod.is_active() && !pod.deleting;
    observed.own_pods().any(is_outside)
}

/// Returns true if the job asks for a gang that the scheduler can place.
fn wants_gang(observed: &Observed, plan: &[PlanEntry]) -> bool {
    asks_for_gang(observed) && find_setup_problem(observed, plan).is_none()
}

/// Returns why the gang that the job asks for cannot be placed: the orchestrator has no scheduler,
/// a template sets another one, or a queue is missing.
pub(super) fn find_setup_problem(observed: &Observed, plan: &[PlanEntry]) -> Option<String> {
    let is_aggregator = |entry: &PlanEntry| {
        let is_declared = entry.is_wanted() && entry.origin == Origin::Declared;
        is_declared && entry.role == Role::Aggregator
    };
    let aggregator = observed.aggregator.pod_template();
    let aggregator = aggregator.filter(|_| plan.iter().any(is_aggregator));
    let scheduler = observed.gang.scheduler.as_ref();
    gang_problem(&observed.job, scheduler, aggregator)
}

pub(super) fn is_placed(status: &DIJobStatus) -> bool {
    let scheduling = status.scheduling.as_ref();
    scheduling.is_some_and(|scheduling| scheduling.placed)
}

/// Returns the names of the replicas in the floor: none if the job does not ask for a gang any
/// more. `None` until all of its pods are known.
pub(super) fn find_floor<'a>(
    observed: &Observed,
    plan: &'a [PlanEntry],
) -> Option<BTreeSet<&'a str>> {
    if wants_gang(observed, plan) {
        floor_members(&observed.job, plan)
    } else {
        Some(BTreeSet::new())
    }
}

/// Returns the pods of the floor, the coordinator first. `None` for a pod that does not exist.
pub(super) fn floor_pods<'a>(
    observed: &'a Observed,
    floor: &'a BTreeSet<&str>,
) -> impl Iterator<Item = Option<&'a PodView>> {
    let coordinator = names::coordinator_name(&observed.job.name_any());
    let replicas = floor.iter().map(move |name| observed.own_pod(name));
    std::iter::once(observed.own_pod(&coordinator)).chain(replicas)
}

pub(super) fn runs_on_node(pod: &PodView) -> bool {
    pod.is_on_node() && pod.is_active() && !pod.deleting
}

/// Returns the group with the name of the job's group. It may belong to another owner.
pub(super) fn find_group(observed: &Observed) -> Option<&GroupView> {
    let name = group_name(&observed.job);
    let mut groups = observed.gang.groups.iter();
    groups.find(|group| group.name == name)
}

pub(super) fn is_own(observed: &Observed, group: &GroupView) -> bool {
    group.owner.as_deref() == Some(observed.job_uid())
}
