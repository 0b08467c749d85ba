//! Checks that a settled job has the Workloads and the group that it needs.

use std::collections::BTreeSet;

use di_api::{Phase, PlanEntry};
use di_cache::OptionalApi;
use di_plan::{
    PodPhase, PodView, WorkloadView, floor_members, group_name, job_object_name,
    replica_workload_name, wanted_members,
};
use kube::ResourceExt;

use super::Model;
use crate::step::tests::fake_gang_scheduler::find_group;

/// Checks a settled job, after Kueue has admitted all of its Workloads, and the gang scheduler has
/// placed all of its pods.
pub(super) fn check_queue(model: &Model) {
    let status = model.status();
    let has_ended = status.phase.is_some_and(Phase::is_terminal);
    if has_ended {
        check_ended(model);
    } else if model.job.spec.suspend {
        assert!(model.queue().workloads.is_empty(), "a suspended job waits");
        assert_eq!(status.queueing, None);
    } else {
        check_admitted(model);
        check_placed(model);
        return;
    }
    assert!(model.gang().groups.is_empty(), "a stopped job has a group");
    assert_eq!(status.scheduling, None);
}

/// Checks that the quota of an ended job is returned.
fn check_ended(model: &Model) {
    // The clean-up policy may keep pods that run, and they keep their quota.
    if model.own_pods().any(PodView::is_active) {
        return;
    }
    for workload in &model.queue().workloads {
        assert_eq!(workload.name, base_name(model));
        assert!(workload.is_true("Finished"), "{workload:?}");
    }
}

/// Checks that a running job has exactly the Workloads that it needs.
fn check_admitted(model: &Model) {
    let plan = &model.status().plan;
    let is_queued = model.job.queue_name().is_some();
    assert_eq!(model.status().queueing.is_some(), is_queued);
    let base = base_name(model);
    let own = plan.iter().filter(|entry| needs_own_quota(plan, entry));
    let mut needed: BTreeSet<String> = own
        .map(|entry| replica_workload_name(&base, entry))
        .collect();
    if is_queued {
        needed.insert(base);
    }
    let all = &model.queue().workloads;
    let existing: BTreeSet<String> = all.iter().map(|workload| workload.name.clone()).collect();
    assert_eq!(existing, needed);
    assert!(all.iter().all(WorkloadView::is_admitted), "{all:#?}");
}

/// Checks that all pods of the gang have nodes.
fn check_placed(model: &Model) {
    let (pods, _) = model.objects();
    let is_waiting = |pod: &&PodView| pod.in_gang && !pod.is_on_node();
    assert_eq!(pods.values().find(is_waiting), None);
    let Some(scheduling) = &model.status().scheduling else {
        return;
    };
    assert!(scheduling.placed, "{scheduling:?}");
    let group = find_group(model.gang(), &group_name(&model.job));
    // A larger one would block the replacements of lost pods.
    let is_small = group.is_some_and(|group| group.min_member <= scheduling.min_member);
    assert!(is_small, "{group:?} of {scheduling:?}");
}

/// Checks that a gang can be placed, after a reconcile with current caches that had nothing left to
/// do: its group is not larger than its floor, and no failed pod counts as a member.
pub(super) fn check_group(model: &Model) {
    let status = model.status();
    let is_served = model.gang().api == OptionalApi::Served(());
    let Some(floor) = floor_members(&model.job, &status.plan) else {
        return;
    };
    if status.scheduling.is_none() || !is_served {
        return;
    }
    let group = find_group(model.gang(), &group_name(&model.job));
    let size = i32::try_from(floor.len() + 1).unwrap();
    let can_be_placed = group.is_some_and(|group| (1..=size).contains(&group.min_member));
    assert!(can_be_placed, "{group:?} of {size} pods");
    let is_failed = |pod: &PodView| pod.phase == PodPhase::Failed && !pod.deleting;
    let failed = model.own_pods().find(|pod| pod.in_gang && is_failed(pod));
    assert_eq!(failed, None);
}

fn base_name(model: &Model) -> String {
    let job = &model.job;
    job_object_name(&job.name_any(), &job.uid().unwrap())
}

/// Whether a replica, with all its pods, is wanted and was not admitted with the whole job.
fn needs_own_quota(plan: &[PlanEntry], entry: &PlanEntry) -> bool {
    let members_are_done = || wanted_members(plan, &entry.name).all(|member| member.done);
    let is_done = entry.done && members_are_done();
    let is_replica = entry.is_wanted() && entry.is_replica();
    is_replica && !is_done && entry.queue.is_some()
}
