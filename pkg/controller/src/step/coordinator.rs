//! The coordinator: made, started again, and its end turned into the job's.

use di_api::{ConditionType, Origin, Phase, PlanEntry, Role, condition, is_true, names};
use di_plan::{PodPhase, PodView, Stage};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{Action, Note, Observed, Step, ending};

/// The coordinator as the plan would have it; it alone has a fixed name, so it needs no place there.
fn entry(seen: &Observed<'_>) -> PlanEntry {
    let name = names::coordinator(&seen.job.name_any());
    PlanEntry::new(name, Role::Coordinator, Origin::Declared, 0)
}

pub(super) fn tend(seen: &Observed<'_>, step: &mut Step) {
    let entry = entry(seen);
    if seen.service(&entry.name).is_none() {
        step.actions.push(Action::CreateService(entry.clone()));
    }
    match seen.pod(&entry.name) {
        None => match seen.asked.get(&entry.name) {
            // A cache may be behind.
            None if runs(step) => step.ask.push(entry.name),
            _ => {
                deleted(seen, step);
                step.actions.push(Action::CreatePod(entry));
            }
        },
        Some(pod) => {
            created(seen, step);
            match &pod.end {
                Some(end) if end.succeeded() => {
                    let message = "the coordinator ended with exit code 0";
                    ending::end(
                        seen,
                        step,
                        Phase::Succeeded,
                        "CoordinatorSucceeded",
                        message,
                    );
                }
                // Told to go; what it exits with then says nothing of the job.
                _ if pod.deleting => {
                    deleted(seen, step);
                    if pod.phase == PodPhase::Unknown {
                        lost(seen, step);
                    }
                }
                Some(_) => failed(seen, step, pod),
                None => follow(seen, step, pod),
            }
        }
    }
}

fn created(seen: &Observed<'_>, step: &mut Step) {
    if step.status.start_time.is_some() {
        return;
    }
    step.status.start_time = Some(Time(seen.now));
    let message = "the coordinator has been created";
    enter(
        seen,
        step,
        Phase::Created,
        ConditionType::Created,
        "CoordinatorCreated",
        message,
    );
}

fn follow(seen: &Observed<'_>, step: &mut Step, pod: &PodView) {
    match (pod.stage(), pod.phase) {
        (_, PodPhase::Unknown) => lost(seen, step),
        (Stage::Active, _) => {
            let message = "the coordinator runs";
            enter(
                seen,
                step,
                Phase::Running,
                ConditionType::Running,
                "CoordinatorRunning",
                message,
            );
        }
        _ => {
            step.status.phase = Some(Phase::Created);
            not_running(
                seen,
                step,
                "CoordinatorPending",
                "the coordinator does not run yet",
            );
        }
    }
}

fn runs(step: &Step) -> bool {
    is_true(&step.status.conditions, ConditionType::Running)
}

/// Tells once of a running coordinator that somebody else has deleted, or does: a user, a drain, the loss of its node.
fn deleted(seen: &Observed<'_>, step: &mut Step) {
    if runs(step) {
        let message = "the coordinator was deleted while it ran; it is started again";
        not_running(seen, step, "CoordinatorDeleted", message);
        step.notes
            .push(Note::warning("CoordinatorDeleted", message));
    }
}

fn lost(seen: &Observed<'_>, step: &mut Step) {
    let message = "the coordinator's node does not answer";
    if step.status.phase != Some(Phase::Unknown) {
        step.notes.push(Note::warning("NodeLost", message));
    }
    step.status.phase = Some(Phase::Unknown);
    not_running(seen, step, "NodeLost", message);
}

fn enter(
    seen: &Observed<'_>,
    step: &mut Step,
    phase: Phase,
    type_: ConditionType,
    reason: &'static str,
    message: &str,
) {
    if step.status.phase != Some(phase) {
        step.notes.push(Note::normal(reason, message));
    }
    step.status.phase = Some(phase);
    seen.set_condition(&mut step.status, type_, true, reason, message);
}

/// Takes the condition Running back, where it was ever set.
pub(super) fn not_running(seen: &Observed<'_>, step: &mut Step, reason: &str, message: &str) {
    let status = &mut step.status;
    if condition(&status.conditions, ConditionType::Running).is_some() {
        seen.set_condition(status, ConditionType::Running, false, reason, message);
    }
}

/// A failed coordinator is started again while the limit allows; what the cluster did to it does not count.
fn failed(seen: &Observed<'_>, step: &mut Step, pod: &PodView) {
    let Some(end) = &pod.end else { return };
    let how = format!("the coordinator failed: {end}");
    let counted = step.status.failed_coordinator.as_deref() == Some(&pod.uid);
    if !counted && !pod.disrupted {
        if step.status.restarts >= seen.job.spec.backoff_limit {
            let message = if step.status.restarts > 0 {
                format!(
                    "{how}, and was started again {} times before",
                    step.status.restarts
                )
            } else {
                how
            };
            ending::end(seen, step, Phase::Failed, "CoordinatorFailed", &message);
            return;
        }
        step.status.restarts += 1;
    }
    if !counted {
        step.status.failed_coordinator = Some(pod.uid.clone());
        let message = format!("{how}; it is started again");
        step.notes
            .push(Note::warning("CoordinatorRestarted", message));
    }
    step.status.phase = Some(Phase::Created);
    not_running(seen, step, "CoordinatorRestarting", &how);
    step.actions.push(Action::delete_pod(pod));
}
