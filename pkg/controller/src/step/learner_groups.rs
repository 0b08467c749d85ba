//! Learner groups: an aggregator and its ddp learners, which are created and deleted together. Some
//! functions treat units alike. See docs/decisions/0008 and 0040.

use std::{collections::HashSet, time::Duration};

use di_api::{PlanEntry, Reason, Role};
use di_plan::{
    SimpleAllocation, Suffixes, find_entry, group_members, is_group_complete, leader_of,
    plan_ddp_learners, plan_unit_members,
};
use kube::ResourceExt;

use super::{
    loss::ReplicaLoss,
    observed::Observed,
    outcome::{EventRecord, Step},
};

/// The nodes are listed within this time after the start, or their watch reports an error.
const NODE_LIST_DELAY: Duration = Duration::from_secs(1);

/// Plans the pods of units. Sets the port of new aggregators, and plans their ddp learners.
pub(super) fn reconcile_learner_groups(
    observed: &Observed,
    plan: &mut Vec<PlanEntry>,
    step: &mut Step,
    suffixes: &mut dyn Suffixes,
) {
    plan_unit_members(&observed.job, plan, suffixes, observed.now);
    let aggregators = plan.iter_mut().filter(|e| e.role == Role::Aggregator);
    for entry in aggregators.filter(|entry| entry.port.is_none()) {
        entry.port = observed.aggregator.pod_port();
    }
    let has_no_members = |group: &PlanEntry| group_members(plan, &group.name).next().is_none();
    match &observed.nodes {
        Some(nodes) => plan_ddp_learners(
            &observed.job,
            plan,
            nodes,
            &SimpleAllocation,
            suffixes,
            observed.now,
        ),
        None if wanted_aggregators(plan).any(has_no_members) => {
            step.requeue_within(NODE_LIST_DELAY);
        }
        None => {}
    }
    // During another error the reason of the job is that error, and does not show whether this
    // event was already emitted.
    if observed.last_error.is_none()
        && let Some((reason, message)) = missing_template(observed, plan)
        && step.status.reason.as_deref() != Some(reason.as_str())
    {
        step.events.push(EventRecord::warning(reason, message));
    }
}

fn wanted_aggregators(plan: &[PlanEntry]) -> impl Iterator<Item = &PlanEntry> {
    plan.iter()
        .filter(|entry| entry.role == Role::Aggregator && entry.is_wanted())
}

/// Returns the name of the aggregator of a ddp learner, that of the leader of a pod of a unit, and of
/// any other replica its own name.
pub(super) fn group_owner(entry: &PlanEntry) -> &str {
    leader_of(entry).unwrap_or(&entry.name)
}

/// Returns the entry of the [group owner](group_owner). A ddp learner without an aggregator, or a
/// pod of a unit without a leader, is its own.
pub(super) fn group_owner_entry<'a>(plan: &'a [PlanEntry], entry: &'a PlanEntry) -> &'a PlanEntry {
    let leader = leader_of(entry).and_then(|name| find_entry(plan, name));
    leader.unwrap_or(entry)
}

/// Returns the owners of groups with a terminating pod and a pod that is not terminating.
pub(super) fn partially_deleted(observed: &Observed, plan: &[PlanEntry]) -> HashSet<String> {
    let is_in_group = |entry: &&PlanEntry| entry.leads_group() || !entry.is_replica();
    let owners_with_pod = |deleting: bool| {
        let has_such_pod = move |entry: &&PlanEntry| {
            let pod = observed.own_pod(&entry.name);
            entry.is_wanted() && pod.is_some_and(|pod| pod.deleting == deleting)
        };
        plan.iter()
            .filter(is_in_group)
            .filter(has_such_pod)
            .map(group_owner)
    };
    let remaining: HashSet<_> = owners_with_pod(false).collect();
    let both = owners_with_pod(true).filter(|owner| remaining.contains(owner));
    both.map(str::to_owned).collect()
}

/// Returns the aggregators that lack some of their ddp learners: these were deleted before they
/// were adopted.
pub(super) fn incomplete_groups(plan: &[PlanEntry]) -> Vec<(String, ReplicaLoss<'static>)> {
    wanted_aggregators(plan)
        .filter(|group| group_members(plan, &group.name).next().is_some())
        .filter(|group| {
            // Members that were adopted before their aggregator are already being removed.
            let is_removing = |member: &PlanEntry| !member.is_wanted();
            !is_group_complete(plan, &group.name)
                || group_members(plan, &group.name).any(is_removing)
        })
        .map(|group| {
            let loss = ReplicaLoss {
                cause: "lacks some of its ddp learners".to_owned(),
                run_seconds: None,
                failed: None,
            };
            (group.name.clone(), loss)
        })
        .collect()
}

/// Returns true if the entry is an aggregator and its pod cannot be created yet.
pub(super) fn lacks_template(observed: &Observed, entry: &PlanEntry) -> bool {
    let has_no_template = entry.uid.is_none() && observed.aggregator.pod_template().is_none();
    entry.role == Role::Aggregator && (entry.port.is_none() || has_no_template)
}

/// Returns reason and message if an aggregator waits for its template.
pub(super) fn missing_template(
    observed: &Observed,
    plan: &[PlanEntry],
) -> Option<(Reason, String)> {
    let is_waiting = !observed.job.spec.suspend
        && wanted_aggregators(plan).any(|entry| lacks_template(observed, entry));
    let namespace = observed.job.namespace().unwrap_or_default();
    is_waiting
        .then(|| observed.aggregator.missing_reason(&namespace))
        .flatten()
}
