//! The coordinator: created, restarted with a backoff, and its end is the end of the job.

use std::time::Duration;

use di_api::{
    ConditionType, FailureAction, Origin, Phase, PlanEntry, Reason, Role, find_condition,
    is_condition_true, names,
};
use di_plan::{End, PodPhase, PodView, Stage, next_attempt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{
    failures::{PodFailure, describe_end, end_of_pod, evaluate_failure, record_failures},
    loss,
    observed::Observed,
    outcome::{Action, EventRecord, Step},
    phase::{finish_job, reset_phase, set_not_running},
};

/// Returns a plan entry for the coordinator. It has a fixed name, so the plan itself has no entry
/// for it. See docs/decisions/0002.
fn coordinator_entry(observed: &Observed) -> PlanEntry {
    let name = names::coordinator_name(&observed.job.name_any());
    PlanEntry::new(name, Role::Coordinator, Origin::Declared, 0)
}

/// Finishes the job if its coordinator has ended for good. This applies also to a job that is
/// suspended or late by now: it must not run again.
pub(super) fn check_end(observed: &Observed, step: &mut Step) {
    let Some((pod, end)) = ended_coordinator(observed) else {
        return;
    };
    let is_ignored = exit_is_ignored(step, pod);
    // Exit code 0 is success, also in a pod that a drain deletes. Only after a deletion by us the
    // exit does not count: the program may have saved its state and exited with 0.
    // See docs/decisions/0015.
    if end.has_succeeded() && !(is_ignored && pod.deleting) {
        mark_created(observed, step);
        let message = "the coordinator ended with exit code 0";
        let reason = Reason::CoordinatorSucceeded;
        finish_job(observed, step, Phase::Succeeded, reason, message);
        return;
    }
    if end.has_succeeded() || is_ignored || pod.deleting {
        return;
    }
    let mut matches = step.status.coordinator.rule_matches.clone();
    let failure = evaluate_failure(observed, pod, &end, &mut matches);
    let restarts = step.status.restarts;
    let (phase, reason, message) = match failure.record.action {
        FailureAction::FailJob => (Phase::Failed, Reason::FailureRule, failure.job_failure()),
        FailureAction::Done => {
            let (reason, message) = (Reason::CoordinatorSucceeded, failure.job_failure());
            (
                Phase::Succeeded,
                reason,
                format!("{message}; the rule counts this as success"),
            )
        }
        FailureAction::Count
            if counts_against_limit(pod, &failure)
                && restarts >= observed.job.spec.backoff_limit =>
        {
            let message = failure_message(observed, &end);
            let message = match restarts {
                0 => message,
                1 => format!("{message} after 1 restart"),
                n => format!("{message} after {n} restarts"),
            };
            (Phase::Failed, Reason::CoordinatorFailed, message)
        }
        FailureAction::Count | FailureAction::Ignore => return,
    };
    mark_created(observed, step);
    record_failures(step, [failure.record]);
    finish_job(observed, step, phase, reason, &message);
}

/// Returns true if a failure counts against `backoffLimit`. Disruptions by the cluster do not,
/// unless a rule says so. See docs/decisions/0025.
fn counts_against_limit(pod: &PodView, failure: &PodFailure) -> bool {
    failure.record.action == FailureAction::Count
        && (pod.counts_as_failure() || failure.record.rule.is_some())
}

/// Returns true if a previous job of the same name owns the coordinator's pod. The garbage
/// collector deletes it.
pub(super) fn owned_by_previous_job(observed: &Observed) -> bool {
    let name = names::coordinator_name(&observed.job.name_any());
    let has_other_owner =
        |pod: &PodView| pod.owner.is_some() && !pod.belongs_to(observed.job_uid());
    observed.any_pod(&name).is_some_and(has_other_owner)
}

/// Returns true if the coordinator has its place in a quota: its pod exists, or this step creates
/// it. Other pods, created before, could take that place.
pub(super) fn exists_or_is_created(observed: &Observed, step: &Step) -> bool {
    let pod = observed.own_pod(&names::coordinator_name(&observed.job.name_any()));
    pod.map_or_else(
        || step.actions.iter().any(Action::creates_coordinator),
        |pod| pod.end.is_none(),
    )
}

/// Returns the ended coordinator pod and its end: the observed pod, or its final state if it was
/// deleted before its end was observed.
fn ended_coordinator(observed: &Observed) -> Option<(&PodView, End)> {
    let pod = observed.own_pod(&names::coordinator_name(&observed.job.name_any()));
    let pod = pod.or(observed.final_coordinator_state.as_ref())?;
    Some((pod, end_of_pod(observed, pod)?))
}

fn failure_message(observed: &Observed, end: &End) -> String {
    format!("the coordinator failed: {}", describe_end(observed, end))
}

/// Creates the coordinator, tracks its pod, or restarts it. [`check_end`] runs before, so an ended
/// coordinator has not ended the job.
pub(super) fn reconcile_coordinator(observed: &Observed, step: &mut Step) {
    if matches!(step.status.phase, Some(Phase::Suspended | Phase::Queued)) {
        reset_phase(step);
        let message = "the coordinator is not running yet";
        set_not_running(observed, step, Reason::CoordinatorPending, message);
    }
    let mut entry = coordinator_entry(observed);
    entry.memory.clone_from(&step.status.coordinator.memory);
    if observed.own_service(&entry.name).is_none() {
        step.actions.push(Action::CreateService(entry.clone()));
    }
    let Some(pod) = observed.own_pod(&entry.name) else {
        match observed.live_reads.get(&entry.name) {
            // The cache may lag.
            None if is_running(step) || step.status.coordinator.uid.is_some() => {
                step.needs_live_read.push(entry.name);
            }
            _ => {
                if step.status.coordinator.uid.is_some() {
                    let last = observed.final_coordinator_state.as_ref();
                    let last = last.filter(|pod| !pod.deleting && !exit_is_ignored(step, pod));
                    if let Some((pod, end)) = last.and_then(|pod| Some((pod, pod.end.as_ref()?))) {
                        record_failure(observed, step, pod, end);
                    }
                    let run_seconds = seconds_since_running_condition(observed, step);
                    record_loss(observed, step, run_seconds);
                }
                on_deleted(observed, step);
                reset_phase(step);
                match backoff_remaining(observed, step) {
                    Some(delay) => step.requeue_within(delay),
                    None => step.actions.push(Action::CreatePod(entry)),
                }
            }
        }
        return;
    };
    mark_created(observed, step);
    match end_of_pod(observed, pod) {
        // The exit code of a deleted pod does not count as a failure.
        _ if pod.deleting => {
            if step.status.coordinator.uid.as_ref() == Some(&pod.uid) {
                record_loss(observed, step, pod_run_seconds(observed, step, pod));
            }
            on_deleted(observed, step);
            if pod.phase == PodPhase::Unknown {
                on_node_lost(observed, step);
            } else {
                reset_phase(step);
            }
        }
        Some(end) => restart_after_exit(observed, step, pod, &end),
        // A pod with an ignored exit still runs if the job was resumed before its deletion.
        None if restart_requested(observed, pod) || exit_is_ignored(step, pod) => {
            restart_running(observed, step, pod);
        }
        None => track_running(observed, step, pod),
    }
}

fn mark_created(observed: &Observed, step: &mut Step) {
    if step.status.start_time.is_some() {
        return;
    }
    step.status.start_time = Some(Time(observed.now));
    step.status.phase = Some(Phase::Created);
    // Without an event: `apply_actions` emits one for all pods that it creates.
    observed.set_condition(
        &mut step.status,
        ConditionType::Created,
        true,
        Reason::CoordinatorCreated,
        "the coordinator has been created",
    );
}

fn track_running(observed: &Observed, step: &mut Step, pod: &PodView) {
    step.status.coordinator.uid = Some(pod.uid.clone());
    match (pod.stage(), pod.phase) {
        (_, PodPhase::Unknown) => on_node_lost(observed, step),
        (Stage::Active, _) => {
            let (reason, message) = (Reason::CoordinatorRunning, "the coordinator is running");
            // A pod exists only after a status was written. Without one the status was lost, and
            // the event was already emitted.
            let status_was_lost = observed.job.status.is_none();
            if step.status.phase != Some(Phase::Running) && !status_was_lost {
                step.events.push(EventRecord::normal(reason, message));
            }
            step.status.phase = Some(Phase::Running);
            let type_ = ConditionType::Running;
            observed.set_condition(&mut step.status, type_, true, reason, message);
        }
        _ => {
            step.status.phase = Some(Phase::Created);
            set_not_running(
                observed,
                step,
                Reason::CoordinatorPending,
                "the coordinator is not running yet",
            );
        }
    }
}

/// Records the loss of a pod and starts the backoff. The first replacement is immediate, the delay
/// of the next ones grows until one runs for long.
fn record_loss(observed: &Observed, step: &mut Step, run_seconds: Option<i64>) {
    let last = &mut step.status.coordinator;
    let (attempt, not_before) = next_attempt(last.attempt, run_seconds, observed.now);
    last.uid = None;
    (last.attempt, last.not_before) = (attempt, not_before);
}

/// Returns the delay before the next pod is created.
fn backoff_remaining(observed: &Observed, step: &Step) -> Option<Duration> {
    loss::backoff_remaining(step.status.coordinator.not_before.as_ref(), observed.now)
}

/// Returns the run time of a pod. The times of its kubelet come first, as the condition `Running`
/// may cover only a part.
fn pod_run_seconds(observed: &Observed, step: &Step, pod: &PodView) -> Option<i64> {
    let observed_seconds = seconds_since_running_condition(observed, step);
    let has_end_time = pod.end.as_ref().is_some_and(|end| end.at.is_some());
    let limit = observed_seconds.filter(|_| !has_end_time);
    pod.run_seconds(observed.now, limit).or(observed_seconds)
}

/// Returns the time since the condition `Running` became true.
fn seconds_since_running_condition(observed: &Observed, step: &Step) -> Option<i64> {
    let running = find_condition(&step.status.conditions, ConditionType::Running);
    let running = running.filter(|running| running.status == "True")?;
    let duration = observed.now.duration_since(running.last_transition_time.0);
    Some(duration.as_secs())
}

fn is_running(step: &Step) -> bool {
    is_condition_true(&step.status.conditions, ConditionType::Running)
}

/// Reports once that a running coordinator was deleted by another client: a user, a drain, or the
/// node lifecycle controller.
fn on_deleted(observed: &Observed, step: &mut Step) {
    if is_running(step) {
        let message = "the coordinator was deleted while it was running; restarting it";
        set_not_running(observed, step, Reason::CoordinatorDeleted, message);
        step.events
            .push(EventRecord::warning(Reason::CoordinatorDeleted, message));
    }
}

fn on_node_lost(observed: &Observed, step: &mut Step) {
    let message = "the node of the coordinator does not respond";
    if step.status.phase != Some(Phase::Unknown) {
        step.events
            .push(EventRecord::warning(Reason::NodeLost, message));
    }
    step.status.phase = Some(Phase::Unknown);
    set_not_running(observed, step, Reason::NodeLost, message);
}

/// Deletes an ended coordinator, so that a new pod can take its name. It is kept for its logs
/// until the backoff is over.
fn restart_after_exit(observed: &Observed, step: &mut Step, pod: &PodView, end: &End) {
    let failure = failure_message(observed, end);
    if !exit_is_ignored(step, pod) {
        record_failure(observed, step, pod, end);
        record_loss(observed, step, pod_run_seconds(observed, step, pod));
        let message = match backoff_remaining(observed, step) {
            Some(delay) => format!("{failure}; restarting it in {} s", delay.as_secs()),
            None => format!("{failure}; restarting it"),
        };
        step.events
            .push(EventRecord::warning(Reason::CoordinatorRestarted, message));
        step.status.failed_coordinator = Some(pod.uid.clone());
    }
    step.status.phase = Some(Phase::Created);
    set_not_running(observed, step, Reason::CoordinatorRestarting, &failure);
    if restart_requested(observed, pod) {
        step.status.coordinator.reset_pod();
    }
    match backoff_remaining(observed, step) {
        Some(delay) => step.requeue_within(delay),
        None => step.actions.push(Action::delete_pod(pod)),
    }
}

/// Records a failure after which the coordinator is restarted.
fn record_failure(observed: &Observed, step: &mut Step, pod: &PodView, end: &End) {
    let coordinator = &mut step.status.coordinator;
    let failure = evaluate_failure(observed, pod, end, &mut coordinator.rule_matches);
    coordinator.memory = failure.memory.clone().or(coordinator.memory.take());
    if counts_against_limit(pod, &failure) {
        step.status.restarts += 1;
    }
    record_failures(step, [failure.record]);
}

/// Returns true if the restart annotation has the UID of this pod. See docs/decisions/0014.
fn restart_requested(observed: &Observed, pod: &PodView) -> bool {
    observed.job.annotations().get(names::RESTART_ANNOTATION) == Some(&pod.uid)
}

/// Restarts a running coordinator. Its exit is ignored before it is deleted: it may exit with 0
/// once it has saved its state, and must not end the job. See docs/decisions/0015.
fn restart_running(observed: &Observed, step: &mut Step, pod: &PodView) {
    let message = if restart_requested(observed, pod) {
        "a user requested a restart of the coordinator"
    } else {
        "restarting the coordinator: its pod was created before the job was suspended"
    };
    let is_new = !exit_is_ignored(step, pod);
    if is_new {
        step.events
            .push(EventRecord::normal(Reason::CoordinatorRestarted, message));
        step.status.failed_coordinator = Some(pod.uid.clone());
    }
    if is_new || restart_requested(observed, pod) {
        step.status.coordinator.reset_pod();
    } else if let Some(delay) = backoff_remaining(observed, step) {
        // A rule has counted its waiting container as failed, and now it runs.
        step.requeue_within(delay);
        return;
    }
    step.status.phase = Some(Phase::Created);
    set_not_running(observed, step, Reason::CoordinatorRestarting, message);
    step.actions.push(Action::delete_pod(pod));
}

fn exit_is_ignored(step: &Step, pod: &PodView) -> bool {
    step.status.failed_coordinator.as_deref() == Some(&pod.uid)
}

/// Records that the coordinator is about to be deleted: from now on its exit does not end
/// the job, and is not a failure.
pub(super) fn ignore_exit(observed: &Observed, step: &mut Step) {
    step.status.coordinator.reset_pod();
    if let Some(pod) = observed.own_pod(&names::coordinator_name(&observed.job.name_any())) {
        step.status.failed_coordinator = Some(pod.uid.clone());
    }
}
