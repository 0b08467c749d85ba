//! Conditions that follow from the pods, and the worst reason that a user must know.

use std::cmp::Reverse;

use di_api::{ConditionType, DIJobStatus, Phase, PlanEntry, Reason, Role, condition, names};
use di_plan::PodView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use super::{Observed, Trouble, replicas, units};

/// What is told of a job that is held.
pub(super) const HELD: &str = "the job is held and no pod of it is left";

pub(super) fn fill(seen: &Observed<'_>, status: &mut DIJobStatus) {
    tell(seen, status);
    // What a change of the spec leaves as it is holds for the new one too: who waits for a condition takes none of an older generation.
    for type_ in ConditionType::ALL {
        let mut all = status.conditions.iter_mut();
        if let Some(condition) = all.find(|condition| condition.type_ == type_.as_str()) {
            condition.observed_generation = seen.job.metadata.generation;
        }
    }
}

fn tell(seen: &Observed<'_>, status: &mut DIJobStatus) {
    suspended(seen, status);
    let trouble = seen
        .trouble
        .map(|trouble| (trouble.reason, told(status, trouble)));
    if status.has_ended() {
        let end = ended_by(&status.conditions).map(|end| end.reason.clone());
        let known = end
            .as_deref()
            .and_then(|end| Reason::among(Reason::ALL, end));
        status.reason = end;
        let ended = (
            known.unwrap_or(Reason::Ended),
            "the job has ended".to_owned(),
        );
        let (reason, message) = trouble.unwrap_or(ended);
        seen.set_condition(
            status,
            ConditionType::ReplicasReady,
            false,
            reason,
            &message,
        );
        return;
    }
    let stuck = trouble
        .or_else(|| units::stuck(seen, &status.plan))
        .or_else(|| stuck(seen, status));
    let reason = stuck.as_ref().map(|(reason, _)| *reason);
    let lost = (status.phase == Some(Phase::Unknown)).then_some(Reason::NodeLost);
    status.reason = reason.or(lost).map(|reason| reason.to_string());
    replicas_ready(seen, status, stuck);
}

/// What is told of a trouble stays as it is while the reason does: a message that differs from try to try must not lead to a write, which
/// would lead to the next try. What is put off is not tried because of it.
fn told(status: &DIJobStatus, trouble: &Trouble) -> String {
    if trouble.about.is_some() {
        return trouble.message.clone();
    }
    condition(&status.conditions, ConditionType::ReplicasReady)
        .filter(|old| old.reason == trouble.reason.as_str())
        .map_or_else(|| trouble.message.clone(), |old| old.message.clone())
}

fn ended_by(conditions: &[Condition]) -> Option<&Condition> {
    [ConditionType::Failed, ConditionType::Succeeded]
        .into_iter()
        .filter_map(|type_| condition(conditions, type_))
        .find(|end| end.status == "True")
}

/// The worst pod's reason, of several alike the coordinator's, else that of the first by name, so that it does not change from look to look.
fn stuck(seen: &Observed<'_>, status: &DIJobStatus) -> Option<(Reason, String)> {
    let there = seen.own_pods().filter(|pod| !pod.deleting);
    let waiting = there.filter_map(|pod| {
        if let Some((reason, message)) = pod.stuck() {
            return Some((pod, reason, message.to_owned()));
        }
        let end = pod.ended_again.as_ref().filter(|_| pod.uses_cluster())?;
        Some((pod, Reason::CrashLoopBackOff, format!("ended again: {end}")))
    });
    let mut stuck: Vec<_> = waiting.chain(backing_off(seen, status)).collect();
    let others = stuck.len().saturating_sub(1);
    stuck.sort_by_key(|&(pod, reason, _)| {
        let coordinates = pod.role == Some(Role::Coordinator);
        (Reverse(severity(reason)), !coordinates, pod.name.as_str())
    });
    let (pod, reason, message) = stuck.into_iter().next()?;
    let name = &pod.name;
    Some((reason, format!("{name}: {message}{}", and_more(others))))
}

/// Pods that have failed, and in whose place others are made later: what a kubelet says of a container that it starts again holds for them.
fn backing_off<'a>(
    seen: &'a Observed<'_>,
    status: &'a DIJobStatus,
) -> impl Iterator<Item = (&'a PodView, Reason, String)> {
    let coordinator = names::coordinator(&seen.job.name_any());
    let coordinator = (coordinator, status.coordinator.not_before.as_ref());
    let unmade = |entry: &&PlanEntry| entry.is_wanted() && entry.uid.is_none();
    let replicas = status.plan.iter().filter(unmade).filter_map(|entry| {
        let failed = entry.replaces.clone()?;
        let unit = units::lead(&status.plan, entry);
        Some((failed, unit.not_before.as_ref()))
    });
    let all = std::iter::once(coordinator).chain(replicas);
    all.filter_map(|(failed, not_before)| {
        replicas::wait(not_before, seen.now)?;
        let pod = seen.pod(&failed)?;
        // Those that were told to go, by whomever, have not failed.
        let has_failed = !pod.deleting && pod.is_to_blame();
        let end = pod
            .end
            .as_ref()
            .filter(|end| has_failed && !end.succeeded())?;
        let message = format!("failed: {end}; the next try is at {}", not_before?.0);
        Some((pod, Reason::CrashLoopBackOff, message))
    })
}

fn and_more(others: usize) -> String {
    match others {
        0 => String::new(),
        n => format!(" (and {n} more)"),
    }
}

/// How much somebody is needed for a pod to run.
fn severity(reason: Reason) -> u8 {
    match reason {
        // Room may come by itself.
        Reason::Unschedulable => 0,
        // The kubelet tries again.
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

fn replicas_ready(seen: &Observed<'_>, status: &mut DIJobStatus, stuck: Option<(Reason, String)>) {
    if status.phase.is_none() && stuck.is_none() {
        return;
    }
    // One that has done its work need not be ready for more.
    let all = status.plan.iter();
    let all = all.filter(|entry| entry.is_wanted() && !entry.done);
    let mut waiting = all.filter(|entry| {
        let fine = |pod: &PodView| !pod.deleting && (pod.ready || pod.has_done_its_work());
        !seen.pod(&entry.name).is_some_and(fine)
    });
    let (ready, reason, message) = match (waiting.next(), stuck) {
        (_, Some((reason, message))) => (false, reason, message),
        (_, None) if status.phase == Some(Phase::Suspended) => {
            (false, Reason::Suspended, HELD.to_owned())
        }
        (None, None) => (
            true,
            Reason::AllReady,
            "every planned replica is ready".to_owned(),
        ),
        (Some(first), None) => (
            false,
            Reason::NotReady,
            format!("{} is not ready{}", first.name, and_more(waiting.count())),
        ),
    };
    seen.set_condition(
        status,
        ConditionType::ReplicasReady,
        ready,
        reason,
        &message,
    );
}

fn suspended(seen: &Observed<'_>, status: &mut DIJobStatus) {
    let held = status.phase == Some(Phase::Suspended);
    if !held && condition(&status.conditions, ConditionType::Suspended).is_none() {
        return;
    }
    let (reason, message) = if held {
        (Reason::Suspended, HELD)
    } else {
        (Reason::Resumed, "the job is not held")
    };
    seen.set_condition(status, ConditionType::Suspended, held, reason, message);
}
