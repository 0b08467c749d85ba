//! Jobs in a queue of Kueue: they wait without pods until they are admitted, and give quota back
//! once pods are gone. See docs/decisions/0037.

mod admission;
mod base_quota;
mod drafts;
mod replica_quota;
mod slots;
mod waiting;
mod workloads;

use di_api::{ConditionType, DIJobStatus, Phase, PlanEntry, QueueState, Reason, find_condition};
use di_cache::QueueApi;
use di_plan::{PodView, patch_finished};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use self::{
    admission::describe_api,
    replica_quota::find_conflict,
    workloads::{base_name, clear_quota, delete_workloads, own_workloads, workload_of},
};
pub(super) use self::{admission::reconcile_admission, replica_quota::assign_quota, slots::Slots};
use super::{
    learner_groups::group_owner_entry,
    observed::Observed,
    outcome::{Action, Step},
};

/// Gives up the quota and the position in the queue of a suspended job. The Workloads are deleted once
/// no pod is left.
pub(super) fn leave_while_suspended(observed: &Observed, step: &mut Step) {
    clear_quota(step);
    let status = &mut step.status;
    if find_condition(&status.conditions, ConditionType::Admitted).is_some() {
        let message = "the job is suspended";
        let type_ = ConditionType::Admitted;
        observed.set_condition(status, type_, false, Reason::Suspended, message);
    }
    if status.phase == Some(Phase::Suspended) {
        delete_workloads(observed, step, |_| true);
    }
}

/// Finishes the Workload of an ended job once no pod uses its quota.
pub(super) fn finish(observed: &Observed, step: &mut Step) {
    if observed.own_pods().any(PodView::is_active) {
        return;
    }
    let has_succeeded = step.status.phase == Some(Phase::Succeeded);
    let (reason, message) = if has_succeeded {
        ("Succeeded", "the job has succeeded")
    } else {
        ("Failed", "the job has failed")
    };
    let base = base_name(observed);
    let running = own_workloads(observed).find(|workload| workload.name == base);
    if let Some(workload) = running.filter(|workload| !workload.is_true("Finished")) {
        let patch = patch_finished(workload, reason, message, observed.now);
        step.actions.push(Action::PatchWorkloadStatus(patch));
    }
    delete_workloads(observed, step, |workload| workload.name != base);
}

/// Reports an error of a request to Kueue also in the condition `Admitted` of a job that waits.
pub(super) fn report_error(
    observed: &Observed,
    status: &mut DIJobStatus,
    reason: Reason,
    message: &str,
) {
    let is_about_kueue = matches!(reason, Reason::QueueForbidden | Reason::QueueTooManyShapes);
    if is_about_kueue && !observed.job.spec.suspend && waits_for_admission(&status.conditions) {
        observed.set_condition(status, ConditionType::Admitted, false, reason, message);
    }
}

/// Returns true if a job waits for its admission, by its conditions.
pub(crate) fn waits_for_admission(conditions: &[Condition]) -> bool {
    let admitted = find_condition(conditions, ConditionType::Admitted);
    admitted.is_some_and(|admitted| admitted.status == "False")
}

/// Returns reason and message if the job, or one of its replicas, waits for quota.
pub(super) fn waiting_problem(
    observed: &Observed,
    status: &DIJobStatus,
) -> Option<(Reason, String)> {
    let queue = observed.job.queue_name()?;
    let admitted = find_condition(&status.conditions, ConditionType::Admitted);
    if let Some(admitted) = admitted.filter(|admitted| admitted.status == "False") {
        let reason = Reason::find_in(Reason::ALL, &admitted.reason)?;
        let is_shown = !observed.job.spec.suspend;
        return is_shown.then(|| (reason, admitted.message.clone()));
    }
    let api_problem = describe_api(observed, queue);
    // Without Kueue, a new replica is not known to need quota of its own.
    let lacks_quota = |entry: &PlanEntry| match entry.queue {
        None => api_problem.is_some() && entry.placement.is_none(),
        Some(state) => state == QueueState::Waiting,
    };
    let is_waiting = |entry: &&PlanEntry| entry.is_wanted() && !entry.done && lacks_quota(entry);
    let mut waiting = status.plan.iter().filter(is_waiting);
    let first = waiting.next()?;
    if let Some((reason, why)) = &api_problem {
        return Some((*reason, format!("{} waits for quota: {why}", first.name)));
    }
    let workload = workload_of(observed, group_owner_entry(&status.plan, first));
    if let Some(conflict) = workload.and_then(find_conflict) {
        return Some((
            Reason::FlavorConflict,
            format!("{} cannot start: {conflict}", first.name),
        ));
    }
    let reserved = workload.and_then(|workload| workload.condition("QuotaReserved"));
    let why = reserved.map_or(String::new(), |reserved| format!(": {}", reserved.message));
    let more = match waiting.count() {
        0 => String::new(),
        n => format!(" (and {n} more)"),
    };
    let message = format!("{} waits for quota{more}{why}", first.name);
    Some((Reason::QueueWaiting, message))
}

/// Drops the actions for Workloads while Kueue cannot be used: they would do nothing.
pub(super) fn drop_unusable_actions(observed: &Observed, step: &mut Step) {
    if !matches!(observed.queue.api, QueueApi::Served(_)) {
        step.actions.retain(|action| !action.is_for_workload());
    }
}
