//! The end of a job, its clean-up, and its suspension. The end is written first; the clean-up
//! follows.

use std::{collections::HashSet, time::Duration};

use di_api::{
    CleanPodPolicy, ConditionType, DIJobStatus, Phase, Reason, Role, is_condition_true, names,
};
use di_plan::PodView;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{
    coordinator, learner_groups,
    loss::has_completed,
    observed::Observed,
    outcome::{Action, EventRecord, Step},
    phase::{SUSPENDED_MESSAGE, finish_job, reset_phase, set_not_running},
};

/// Deletes the pods of an ended job by its `cleanPodPolicy`, all services, and the job itself
/// after its TTL.
pub(super) fn clean_up(observed: &Observed, step: &mut Step) {
    align_phase_with_condition(observed, &mut step.status);
    let coordinator = names::coordinator_name(&observed.job.name_any());
    let is_coordinator =
        |pod: &PodView| pod.role == Some(Role::Coordinator) || pod.name == coordinator;
    let policy = observed.job.spec.clean_pod_policy;
    let is_deleted = |pod: &PodView| match policy {
        CleanPodPolicy::None => false,
        CleanPodPolicy::All => true,
        // The coordinator is kept for its logs. An unscheduled coordinator has no logs, and would
        // stay pending forever.
        CleanPodPolicy::Running => pod.is_active() && !(is_coordinator(pod) && pod.is_on_node()),
    };
    delete_children(observed, step, is_deleted);
    // A coordinator that still runs is stopped, else it would use the cluster forever.
    // See docs/decisions/0017.
    let is_running = |pod: &&PodView| pod.is_active() && pod.end.is_none() && is_coordinator(pod);
    if policy == CleanPodPolicy::Running {
        for pod in observed.own_pods().filter(is_running) {
            if !is_deleted(pod) && !pod.deleting && !pod.deadline_requested {
                step.actions.push(Action::stop_pod(pod));
            }
        }
    }
    delete_after_ttl(observed, step);
}

/// Sets phase and completion time of a job that has ended by a condition only. Any client may have
/// written that condition.
fn align_phase_with_condition(observed: &Observed, status: &mut DIJobStatus) {
    if !status.phase.is_some_and(Phase::is_terminal) {
        let has_succeeded = is_condition_true(&status.conditions, ConditionType::Succeeded);
        status.phase = Some(if has_succeeded {
            Phase::Succeeded
        } else {
            Phase::Failed
        });
    }
    status.completion_time.get_or_insert(Time(observed.now));
}

/// Deletes the pods that `is_deleted` selects, and all services. A service is deleted after its
/// pod, so that a terminating pod stays reachable.
fn delete_children(observed: &Observed, step: &mut Step, is_deleted: impl Fn(&PodView) -> bool) {
    let pods = observed.own_pods();
    for pod in pods.filter(|pod| is_deleted(pod) && !pod.deleting) {
        step.actions.push(Action::delete_pod(pod));
    }
    let services = observed.own_services();
    for service in services.filter(|service| !service.deleting) {
        let waits_for_pod = observed
            .own_pod(&service.name)
            .is_some_and(|pod| pod.deleting || is_deleted(pod));
        if !waits_for_pod {
            step.actions.push(Action::delete_service(service));
        }
    }
}

/// Returns the rest of a time limit. `None` if it is over.
fn remaining_time(limit_seconds: i64, since: &Time, now: Timestamp) -> Option<Duration> {
    let remaining = limit_seconds.saturating_sub(now.duration_since(since.0).as_secs());
    let remaining = u64::try_from(remaining).ok().filter(|rest| *rest > 0)?;
    Some(Duration::from_secs(remaining))
}

/// Deletes the job after `ttlSecondsAfterFinished`.
fn delete_after_ttl(observed: &Observed, step: &mut Step) {
    let (Some(ttl), Some(ended)) = (
        observed.job.spec.ttl_seconds_after_finished,
        &step.status.completion_time,
    ) else {
        return;
    };
    if let Some(remaining) = remaining_time(i64::from(ttl), ended, observed.now) {
        step.requeue_within(remaining);
    } else {
        step.actions.push(Action::DeleteJob);
    }
}

/// Fails a job that exceeds `activeDeadlineSeconds`.
pub(super) fn check_deadline(observed: &Observed, step: &mut Step) {
    let (Some(limit), Some(start)) = (
        observed.job.spec.active_deadline_seconds,
        &step.status.start_time,
    ) else {
        return;
    };
    if let Some(remaining) = remaining_time(limit, start, observed.now) {
        step.requeue_within(remaining);
    } else {
        let message = format!("the job ran longer than activeDeadlineSeconds, {limit} s");
        finish_job(
            observed,
            step,
            Phase::Failed,
            Reason::DeadlineExceeded,
            &message,
        );
    }
}

/// Deletes all pods and services of a suspended job, and keeps its plan.
pub(super) fn suspend_job(observed: &Observed, step: &mut Step) {
    let pause = Pause {
        phase: Phase::Suspended,
        reason: Reason::Suspended,
        message: "the job is suspended",
        event: SUSPENDED_MESSAGE,
    };
    pause_job(observed, step, &pause);
}

/// Why a job has no pods, and continues later.
pub(super) struct Pause<'a> {
    /// The phase once all pods are gone.
    pub phase: Phase,
    pub reason: Reason,
    /// Message of the condition `Running`.
    pub message: &'a str,
    /// Message of the event once all pods are gone.
    pub event: &'a str,
}

/// Deletes all pods and services of a job, and keeps its plan.
pub(super) fn pause_job(observed: &Observed, step: &mut Step, pause: &Pause<'_>) {
    delete_children(observed, step, |_| true);
    coordinator::ignore_exit(observed, step);
    set_not_running(observed, step, pause.reason, pause.message);
    // A resumed job gets its full activeDeadlineSeconds, as with Kubernetes Jobs.
    step.status.start_time = None;
    let plan = &mut step.status.plan;
    for entry in plan.iter_mut() {
        entry.done |= has_completed(observed, entry);
    }
    // A unit or learner group is resumed, or done, as a whole.
    let undone = plan.iter().filter(|entry| entry.is_wanted() && !entry.done);
    let undone: HashSet<String> = undone
        .map(|entry| learner_groups::group_owner(entry).to_owned())
        .collect();
    for entry in plan {
        entry.done &= !undone.contains(learner_groups::group_owner(entry));
        // Without a UID the same names are created again. See docs/decisions/0004.
        entry.uid = None;
        entry.reported = false;
    }
    if observed.own_pods().next().is_none() {
        if step.status.phase != Some(pause.phase) {
            // The cache may lag, and a create without response may have succeeded.
            let coordinator = names::coordinator_name(&observed.job.name_any());
            let planned = step.status.plan.iter().map(|entry| entry.name.clone());
            let all = planned.chain([coordinator]);
            step.needs_live_read = all
                .filter(|name| !observed.live_reads.contains_key(name))
                .collect();
            if !step.needs_live_read.is_empty() {
                return;
            }
            step.events
                .push(EventRecord::normal(pause.reason, pause.event));
        }
        step.status.phase = Some(pause.phase);
    } else {
        // The phase follows once all pods are gone.
        reset_phase(step);
    }
}
