//! The conditions `ReplicasReady` and `Suspended`, and the reason of the status: the most severe
//! problem that a user must know.

use std::cmp::Reverse;

use di_api::{ConditionType, DIJobStatus, Phase, PlanEntry, Reason, Role, find_condition, names};
use di_plan::{PodView, find_entry};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use super::{
    gang, learner_groups, loss,
    observed::{Observed, ReconcileError},
    phase::SUSPENDED_MESSAGE,
    queueing,
};

pub(super) fn set_conditions(observed: &Observed, status: &mut DIJobStatus) {
    set_reason_and_conditions(observed, status);
    // Unchanged conditions hold for the new generation too. Clients that wait for a condition
    // ignore one of an older generation.
    for type_ in ConditionType::ALL {
        let mut all = status.conditions.iter_mut();
        if let Some(condition) = all.find(|condition| condition.type_ == type_.as_str()) {
            condition.observed_generation = observed.job.metadata.generation;
        }
    }
}

fn set_reason_and_conditions(observed: &Observed, status: &mut DIJobStatus) {
    set_suspended(observed, status);
    let error = observed
        .last_error
        .as_ref()
        .map(|error| (error.reason, stable_message(status, error)));
    if status.has_ended() {
        let end_reason = end_condition(&status.conditions).map(|end| end.reason.clone());
        let known_reason = end_reason
            .as_deref()
            .and_then(|reason| Reason::find_in(Reason::ALL, reason));
        status.reason = end_reason;
        let ended = (
            known_reason.unwrap_or(Reason::Ended),
            "the job has ended".to_owned(),
        );
        let (reason, message) = error.unwrap_or(ended);
        observed.set_condition(
            status,
            ConditionType::ReplicasReady,
            false,
            reason,
            &message,
        );
        return;
    }
    let problem = error
        .or_else(|| learner_groups::missing_template(observed, &status.plan))
        .or_else(|| worst_problem_of_pods_or_gang(observed, status))
        .or_else(|| queueing::waiting_problem(observed, status));
    if let Some((reason, message)) = &problem {
        queueing::report_error(observed, status, *reason, message);
    }
    let reason = problem.as_ref().map(|(reason, _)| *reason);
    let node_lost = (status.phase == Some(Phase::Unknown)).then_some(Reason::NodeLost);
    let warning = gang::gang_warning(observed, status, &status.plan);
    let warning_reason = warning.as_ref().map(|(reason, _)| *reason);
    let reason = reason.or(node_lost).or(warning_reason);
    status.reason = reason.map(|reason| reason.to_string());
    set_replicas_ready(observed, status, problem, warning);
}

/// Returns the message of an error, or the old one if the reason is the same.
///
/// A message that differs at each try would cause a write, and that the next try. A deferred create
/// is not tried because of a write, so its message may change.
fn stable_message(status: &DIJobStatus, error: &ReconcileError) -> String {
    if error.deferred_create.is_some() {
        return error.message.clone();
    }
    find_condition(&status.conditions, ConditionType::ReplicasReady)
        .filter(|old| old.reason == error.reason.as_str())
        .map_or_else(|| error.message.clone(), |old| old.message.clone())
}

fn end_condition(conditions: &[Condition]) -> Option<&Condition> {
    [ConditionType::Failed, ConditionType::Succeeded]
        .into_iter()
        .filter_map(|type_| find_condition(conditions, type_))
        .find(|end| end.status == "True")
}

/// Returns the most severe problem of a pod. That a pod of a gang has no node is a problem of the
/// gang.
fn worst_problem_of_pods_or_gang(
    observed: &Observed,
    status: &DIJobStatus,
) -> Option<(Reason, String)> {
    let of_pods = worst_pod_problem(observed, status);
    let Some(of_gang) = gang::waiting_problem(observed, status) else {
        return of_pods;
    };
    let is_other = |(reason, _): &(Reason, String)| *reason != Reason::Unschedulable;
    of_pods.filter(is_other).or(Some(of_gang))
}

/// Returns the most severe problem of a pod. Among equal ones the coordinator comes first, then the
/// first by name, so that the message is stable.
fn worst_pod_problem(observed: &Observed, status: &DIJobStatus) -> Option<(Reason, String)> {
    let pods = observed.own_pods().filter(|pod| !pod.deleting);
    let waiting = pods.filter_map(|pod| {
        if let Some((reason, message)) = pod.stuck_reason() {
            return Some((pod, reason, message.to_owned()));
        }
        let crash_loop = pod.crash_loop.as_ref().filter(|_| pod.is_active())?;
        let message = format!(
            "container {} exited again: {}",
            crash_loop.container, crash_loop.end
        );
        Some((pod, Reason::CrashLoopBackOff, message))
    });
    let waiting = waiting.chain(pods_with_finalizers(observed, status));
    let mut problems: Vec<_> = waiting.chain(pods_in_backoff(observed, status)).collect();
    let others = problems.len().saturating_sub(1);
    problems.sort_by_key(|&(pod, reason, _)| {
        let is_coordinator = pod.role == Some(Role::Coordinator);
        (
            Reverse(severity_of(reason)),
            !is_coordinator,
            pod.name.as_str(),
        )
    });
    let (pod, reason, message) = problems.into_iter().next()?;
    let name = &pod.name;
    Some((reason, format!("{name}: {message}{}", and_more(others))))
}

/// Returns deleted pods that block their names, or the suspension of the job, because of
/// finalizers.
fn pods_with_finalizers<'a>(
    observed: &'a Observed,
    status: &'a DIJobStatus,
) -> impl Iterator<Item = (&'a PodView, Reason, String)> {
    let coordinator = names::coordinator_name(&observed.job.name_any());
    observed.own_pods().filter_map(move |pod| {
        let finalizers = pod.finalizers.as_ref()?;
        let is_name_needed = pod.name == coordinator
            || find_entry(&status.plan, &pod.name).is_some_and(PlanEntry::is_wanted);
        let message = format!(
            "deleted, but another program has not removed its finalizers yet: {finalizers}"
        );
        (is_name_needed || observed.job.spec.suspend).then_some((
            pod,
            Reason::FinalizersRemain,
            message,
        ))
    })
}

/// Returns failed pods that are replaced after a backoff. They have the reason that a kubelet gives
/// a container in the same situation.
fn pods_in_backoff<'a>(
    observed: &'a Observed,
    status: &'a DIJobStatus,
) -> impl Iterator<Item = (&'a PodView, Reason, String)> {
    let coordinator = names::coordinator_name(&observed.job.name_any());
    let coordinator = (coordinator, status.coordinator.not_before.as_ref());
    let is_uncreated = |entry: &&PlanEntry| entry.is_wanted() && entry.uid.is_none();
    let replicas = status.plan.iter().filter(is_uncreated).filter_map(|entry| {
        let failed = entry.replaces.clone()?;
        let owner = learner_groups::group_owner_entry(&status.plan, entry);
        let not_before = entry.not_before.as_ref().or(owner.not_before.as_ref());
        Some((failed, not_before))
    });
    let all = std::iter::once(coordinator).chain(replicas);
    all.filter_map(|(failed, not_before)| {
        loss::backoff_remaining(not_before, observed.now)?;
        let pod = observed.own_pod(&failed)?;
        // Deleted and evicted pods have not failed.
        let has_failed = !pod.deleting && pod.counts_as_failure();
        let end = pod
            .end
            .as_ref()
            .filter(|end| has_failed && !end.has_succeeded())?;
        let message = format!("failed: {end}; next try at {}", not_before?.0);
        Some((pod, Reason::CrashLoopBackOff, message))
    })
}

fn and_more(others: usize) -> String {
    match others {
        0 => String::new(),
        n => format!(" (and {n} more)"),
    }
}

/// Returns how much a pod needs the help of a user.
fn severity_of(reason: Reason) -> u8 {
    match reason {
        // Nodes may become free.
        Reason::Unschedulable => 0,
        // The kubelet retries.
        Reason::CrashLoopBackOff
        | Reason::ErrImagePull
        | Reason::ImageInspectError
        | Reason::ImagePullBackOff
        | Reason::PostStartHookError
        | Reason::RegistryUnavailable
        | Reason::RunContainerError
        | Reason::SignatureValidationFailed => 1,
        _ => 2,
    }
}

fn set_replicas_ready(
    observed: &Observed,
    status: &mut DIJobStatus,
    problem: Option<(Reason, String)>,
    warning: Option<(Reason, String)>,
) {
    if status.phase.is_none() && problem.is_none() {
        return;
    }
    // A completed replica need not be ready.
    let replicas = status.plan.iter();
    let replicas = replicas.filter(|entry| entry.is_wanted() && !entry.done);
    let coordinator = names::coordinator_name(&observed.job.name_any());
    let all = std::iter::once(&*coordinator).chain(replicas.map(|entry| &*entry.name));
    let mut not_ready = all.filter(|name| {
        let is_ready = |pod: &PodView| !pod.deleting && (pod.ready || pod.has_completed());
        !observed.own_pod(name).is_some_and(is_ready)
    });
    let (is_true, reason, message) = match (not_ready.next(), problem, warning) {
        (_, Some((reason, message)), _) => (false, reason, message),
        (_, None, _) if status.phase == Some(Phase::Suspended) => {
            (false, Reason::Suspended, SUSPENDED_MESSAGE.to_owned())
        }
        (first, None, Some((reason, message))) => (first.is_none(), reason, message),
        (None, None, None) => (
            true,
            Reason::AllReady,
            "the coordinator and every planned replica are ready".to_owned(),
        ),
        (Some(first), None, None) => (
            false,
            Reason::NotReady,
            format!("{first} is not ready{}", and_more(not_ready.count())),
        ),
    };
    observed.set_condition(
        status,
        ConditionType::ReplicasReady,
        is_true,
        reason,
        &message,
    );
}

fn set_suspended(observed: &Observed, status: &mut DIJobStatus) {
    let is_suspended = status.phase == Some(Phase::Suspended);
    if !is_suspended && find_condition(&status.conditions, ConditionType::Suspended).is_none() {
        return;
    }
    let (reason, message) = if is_suspended {
        (Reason::Suspended, SUSPENDED_MESSAGE)
    } else {
        (Reason::Resumed, "the job is not suspended")
    };
    observed.set_condition(
        status,
        ConditionType::Suspended,
        is_suspended,
        reason,
        message,
    );
}
