//! Changes of the phase that several rules make.

use di_api::{ConditionType, DIJobStatus, Phase, Reason, find_condition, is_condition_true};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    observed::Observed,
    outcome::{EventRecord, Step},
};

/// Message of a suspended job.
pub(super) const SUSPENDED_MESSAGE: &str = "the job is suspended and has no pods";

/// Sets the final phase and clears the plan. It drops all actions: the clean-up follows once this
/// status is written. See docs/decisions/0002.
pub(super) fn finish_job(
    observed: &Observed,
    step: &mut Step,
    phase: Phase,
    reason: Reason,
    message: &str,
) {
    let status = &mut step.status;
    status.phase = Some(phase);
    status.completion_time = Some(Time(observed.now));
    status.plan.clear();
    let type_ = if phase == Phase::Succeeded {
        ConditionType::Succeeded
    } else {
        ConditionType::Failed
    };
    observed.set_condition(status, type_, true, reason, message);
    set_not_running(observed, step, reason, "the job has ended");
    step.actions.clear();
    step.events.push(match phase {
        Phase::Failed => EventRecord::warning(reason, message),
        _ => EventRecord::normal(reason, message),
    });
}

/// Sets the phase of a job without a running coordinator: `Created`, or none before the first
/// pod.
pub(super) fn reset_phase(step: &mut Step) {
    let status = &mut step.status;
    let was_created = is_condition_true(&status.conditions, ConditionType::Created);
    status.phase = was_created.then_some(Phase::Created);
}

/// Sets the condition `Running` to false if it exists.
pub(super) fn set_not_running(observed: &Observed, step: &mut Step, reason: Reason, message: &str) {
    let status = &mut step.status;
    if find_condition(&status.conditions, ConditionType::Running).is_some() {
        observed.set_condition(status, ConditionType::Running, false, reason, message);
    }
}

/// Returns true if anything of the job was planned or created. A job that was suspended from the
/// start has only a phase.
pub(crate) fn has_started(status: &DIJobStatus) -> bool {
    let has_phase = status.phase.is_some_and(|phase| phase != Phase::Suspended);
    let was_created = find_condition(&status.conditions, ConditionType::Created).is_some();
    has_phase || was_created || !status.plan.is_empty()
}
