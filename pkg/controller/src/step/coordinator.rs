//! The coordinator: made, started again, and its end turned into the job's.

use std::time::Duration;

use di_api::{
    ConditionType, CoordinatorStatus, Origin, Phase, PlanEntry, Reason, Role, condition, is_true,
    names,
};
use di_plan::{End, PodPhase, PodView, Stage, next_attempt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{Action, Note, Observed, Step, ending, replicas};

/// The coordinator as the plan would have it; it alone has a fixed name, so it needs no place there.
fn entry(seen: &Observed<'_>) -> PlanEntry {
    let name = names::coordinator(&seen.job.name_any());
    PlanEntry::new(name, Role::Coordinator, Origin::Declared, 0)
}

/// How the coordinator ended is how the job ends, whenever that is seen: a job that is held or late by then has ended all the same, and must
/// not run again.
pub(super) fn check_end(seen: &Observed<'_>, step: &mut Step) {
    let Some((pod, end)) = ended(seen) else {
        return;
    };
    let given_up = is_given_up(step, pod);
    // One that was told to go because the job is held may well exit with 0 once it has saved what it has.
    if end.succeeded() && !(given_up && pod.deleting) {
        created(seen, step);
        let message = "the coordinator ended with exit code 0";
        let reason = Reason::CoordinatorSucceeded;
        ending::end(seen, step, Phase::Succeeded, reason, message);
        return;
    }
    // What the cluster did to it, or who deleted it, does not count.
    let counts = !end.succeeded() && !given_up && !pod.deleting && pod.is_to_blame();
    if counts && step.status.restarts >= seen.job.spec.backoff_limit {
        created(seen, step);
        let message = match step.status.restarts {
            0 => failure(end),
            1 => format!("{}, and was started again once before", failure(end)),
            n => format!("{}, and was started again {n} times before", failure(end)),
        };
        ending::end(
            seen,
            step,
            Phase::Failed,
            Reason::CoordinatorFailed,
            &message,
        );
    }
}

/// Whether the coordinator of an earlier job of this name is still there, which goes by itself.
pub(super) fn is_an_earlier_jobs(seen: &Observed<'_>) -> bool {
    let name = names::coordinator(&seen.job.name_any());
    let of_another = |pod: &PodView| pod.owner.is_some() && !pod.belongs_to(seen.uid());
    seen.any_pod(&name).is_some_and(of_another)
}

/// Whether it has its room in a quota, or is made by this very step, which makes it first: else any other new pod might take that.
pub(super) fn has_room(seen: &Observed<'_>, step: &Step) -> bool {
    let pod = seen.pod(&names::coordinator(&seen.job.name_any()));
    pod.map_or_else(
        || step.actions.iter().any(Action::makes_coordinator),
        |pod| pod.end.is_none(),
    )
}

fn ended<'a>(seen: &'a Observed<'_>) -> Option<(&'a PodView, &'a End)> {
    let pod = seen.pod(&names::coordinator(&seen.job.name_any()));
    let pod = pod.or(seen.gone)?;
    Some((pod, pod.end.as_deref()?))
}

fn failure(end: &End) -> String {
    format!("the coordinator failed: {end}")
}

/// Makes the coordinator and follows it, or starts it again; [`check_end`] has found that it has not ended the job.
pub(super) fn tend(seen: &Observed<'_>, step: &mut Step) {
    if step.status.phase == Some(Phase::Suspended) {
        not_there(step);
        let message = "the coordinator does not run yet";
        not_running(seen, step, Reason::CoordinatorPending, message);
    }
    let entry = entry(seen);
    if seen.service(&entry.name).is_none() {
        step.actions.push(Action::CreateService(entry.clone()));
    }
    let Some(pod) = seen.pod(&entry.name) else {
        match seen.asked.get(&entry.name) {
            // A cache may be behind.
            None if runs(step) || step.status.coordinator.uid.is_some() => {
                step.ask.push(entry.name);
            }
            _ => {
                if step.status.coordinator.uid.is_some() {
                    count_loss(seen, step, ran_until_now(seen, step));
                }
                deleted(seen, step);
                not_there(step);
                match wait(seen, step) {
                    Some(wait) => step.look_within(wait),
                    None => step.actions.push(Action::CreatePod(entry)),
                }
            }
        }
        return;
    };
    created(seen, step);
    match &pod.end {
        // Told to go; what it exits with then says nothing of the job.
        _ if pod.deleting => {
            if step.status.coordinator.uid.as_ref() == Some(&pod.uid) {
                count_loss(seen, step, ran(seen, step, pod));
            }
            deleted(seen, step);
            if pod.phase == PodPhase::Unknown {
                lost(seen, step);
            } else {
                not_there(step);
            }
        }
        Some(end) => start_again(seen, step, pod, end),
        // Its deletion may have failed when the job was held, which it is no longer.
        None if is_to_go(seen, pod) || is_given_up(step, pod) => replace(seen, step, pod),
        None => follow(seen, step, pod),
    }
}

fn created(seen: &Observed<'_>, step: &mut Step) {
    if step.status.start_time.is_some() {
        return;
    }
    step.status.start_time = Some(Time(seen.now));
    step.status.phase = Some(Phase::Created);
    // Who made it tells so by an event, and of the others with it.
    seen.set_condition(
        &mut step.status,
        ConditionType::Created,
        true,
        Reason::CoordinatorCreated,
        "the coordinator has been created",
    );
}

fn follow(seen: &Observed<'_>, step: &mut Step, pod: &PodView) {
    step.status.coordinator.uid = Some(pod.uid.clone());
    match (pod.stage(), pod.phase) {
        (_, PodPhase::Unknown) => lost(seen, step),
        (Stage::Active, _) => {
            let (reason, message) = (Reason::CoordinatorRunning, "the coordinator runs");
            // A status is there before a coordinator is: where there is none it was lost, and that it runs is no news.
            let was_lost = seen.job.status.is_none();
            if step.status.phase != Some(Phase::Running) && !was_lost {
                step.notes.push(Note::normal(reason, message));
            }
            step.status.phase = Some(Phase::Running);
            let type_ = ConditionType::Running;
            seen.set_condition(&mut step.status, type_, true, reason, message);
        }
        _ => {
            step.status.phase = Some(Phase::Created);
            not_running(
                seen,
                step,
                Reason::CoordinatorPending,
                "the coordinator does not run yet",
            );
        }
    }
}

/// What a job shows whose coordinator is about to be made again.
pub(super) fn not_there(step: &mut Step) {
    let status = &mut step.status;
    let was_there = is_true(&status.conditions, ConditionType::Created);
    status.phase = was_there.then_some(Phase::Created);
}

/// The next one is made at once, those after it ever later, as long as none runs for long.
fn count_loss(seen: &Observed<'_>, step: &mut Step, ran: Option<i64>) {
    let last = &mut step.status.coordinator;
    let (attempt, not_before) = next_attempt(last.attempt, ran, seen.now);
    *last = CoordinatorStatus {
        uid: None,
        attempt,
        not_before,
    };
}

/// How long the next one has yet to wait.
fn wait(seen: &Observed<'_>, step: &Step) -> Option<Duration> {
    replicas::wait(step.status.coordinator.not_before.as_ref(), seen.now)
}

/// How long it has run: by its kubelet, where that tells of its start and its end, as it may have been seen to run for a part of that only.
fn ran(seen: &Observed<'_>, step: &Step, pod: &PodView) -> Option<i64> {
    let ours = ran_until_now(seen, step);
    let has_told = pod.end.as_ref().is_some_and(|end| end.at.is_some());
    pod.ran(seen.now, ours.filter(|_| !has_told)).or(ours)
}

/// How long one has run that is gone.
fn ran_until_now(seen: &Observed<'_>, step: &Step) -> Option<i64> {
    let running = condition(&step.status.conditions, ConditionType::Running);
    let running = running.filter(|running| running.status == "True")?;
    let ran = seen.now.duration_since(running.last_transition_time.0);
    Some(ran.as_secs())
}

fn runs(step: &Step) -> bool {
    is_true(&step.status.conditions, ConditionType::Running)
}

/// Tells once of a running coordinator that somebody else has deleted, or does: a user, a drain, the loss of its node.
fn deleted(seen: &Observed<'_>, step: &mut Step) {
    if runs(step) {
        let message = "the coordinator was deleted while it ran; it is started again";
        not_running(seen, step, Reason::CoordinatorDeleted, message);
        step.notes
            .push(Note::warning(Reason::CoordinatorDeleted, message));
    }
}

fn lost(seen: &Observed<'_>, step: &mut Step) {
    let message = "the coordinator's node does not answer";
    if step.status.phase != Some(Phase::Unknown) {
        step.notes.push(Note::warning(Reason::NodeLost, message));
    }
    step.status.phase = Some(Phase::Unknown);
    not_running(seen, step, Reason::NodeLost, message);
}

/// Takes the condition Running back, where it was ever set.
pub(super) fn not_running(seen: &Observed<'_>, step: &mut Step, reason: Reason, message: &str) {
    let status = &mut step.status;
    if condition(&status.conditions, ConditionType::Running).is_some() {
        seen.set_condition(status, ConditionType::Running, false, reason, message);
    }
}

/// A failed coordinator is deleted, so that another takes its name. While that one has to wait, it stays for its log.
fn start_again(seen: &Observed<'_>, step: &mut Step, pod: &PodView, end: &End) {
    let how = failure(end);
    if !is_given_up(step, pod) {
        if pod.is_to_blame() {
            step.status.restarts += 1;
        }
        count_loss(seen, step, ran(seen, step, pod));
        let message = match wait(seen, step) {
            Some(wait) => format!("{how}; it is started again in {} s", wait.as_secs()),
            None => format!("{how}; it is started again"),
        };
        step.notes
            .push(Note::warning(Reason::CoordinatorRestarted, message));
        step.status.failed_coordinator = Some(pod.uid.clone());
    }
    step.status.phase = Some(Phase::Created);
    not_running(seen, step, Reason::CoordinatorRestarting, &how);
    if is_to_go(seen, pod) {
        step.status.coordinator = CoordinatorStatus::default();
    }
    match wait(seen, step) {
        Some(wait) => step.look_within(wait),
        None => step.actions.push(Action::delete_pod(pod)),
    }
}

/// Whether a user wants another in the place of exactly this one.
fn is_to_go(seen: &Observed<'_>, pod: &PodView) -> bool {
    seen.job.annotations().get(names::RESTART_ANNOTATION) == Some(&pod.uid)
}

/// It is given up before it is deleted: it may well exit with 0 once it has saved what it has, which is not how the job ends.
fn replace(seen: &Observed<'_>, step: &mut Step, pod: &PodView) {
    let message = if is_to_go(seen, pod) {
        "a restart of the coordinator was asked for"
    } else {
        "the coordinator is one from before the job was held"
    };
    if !is_given_up(step, pod) {
        step.notes
            .push(Note::normal(Reason::CoordinatorRestarted, message));
        step.status.failed_coordinator = Some(pod.uid.clone());
    }
    step.status.coordinator = CoordinatorStatus::default();
    step.status.phase = Some(Phase::Created);
    not_running(seen, step, Reason::CoordinatorRestarting, message);
    step.actions.push(Action::delete_pod(pod));
}

fn is_given_up(step: &Step, pod: &PodView) -> bool {
    step.status.failed_coordinator.as_deref() == Some(&pod.uid)
}

/// Remembers that the coordinator is told to go: what becomes of it from now on is not how the job ends, and no failure.
pub(super) fn give_up(seen: &Observed<'_>, step: &mut Step) {
    step.status.coordinator = CoordinatorStatus::default();
    if let Some(pod) = seen.pod(&names::coordinator(&seen.job.name_any())) {
        step.status.failed_coordinator = Some(pod.uid.clone());
    }
}
