//! The end of a job, whichever way it comes: written first, then cleaned up after.

use std::{collections::HashSet, time::Duration};

use di_api::{CleanPodPolicy, ConditionType, DIJobStatus, Phase, Reason, Role, is_true, names};
use di_plan::PodView;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::{Action, Note, Observed, Step, conditions, coordinator, replicas, units};

/// Latches the end. Nothing of the step stands but this: the clean-up follows once it is written.
pub(super) fn end(
    seen: &Observed<'_>,
    step: &mut Step,
    phase: Phase,
    reason: Reason,
    message: &str,
) {
    let status = &mut step.status;
    status.phase = Some(phase);
    status.completion_time = Some(Time(seen.now));
    status.plan.clear();
    let which = if phase == Phase::Succeeded {
        ConditionType::Succeeded
    } else {
        ConditionType::Failed
    };
    seen.set_condition(status, which, true, reason, message);
    coordinator::not_running(seen, step, reason, "the job has ended");
    step.actions.clear();
    step.notes.push(match phase {
        Phase::Failed => Note::warning(reason, message),
        _ => Note::normal(reason, message),
    });
}

/// What is left of an ended job is what its policy says.
pub(super) fn clean_up(seen: &Observed<'_>, step: &mut Step) {
    tell_alike(seen, &mut step.status);
    let coordinator = names::coordinator(&seen.job.name_any());
    let coordinates =
        |pod: &PodView| pod.role == Some(Role::Coordinator) || pod.name == coordinator;
    let policy = seen.job.spec.clean_pod_policy;
    let goes = |pod: &PodView| match policy {
        CleanPodPolicy::None => false,
        CleanPodPolicy::All => true,
        // One that no node had room for has nothing to be read, and would wait for room for ever.
        CleanPodPolicy::Running => pod.uses_cluster() && !(coordinates(pod) && pod.is_placed()),
    };
    remove(seen, step, goes);
    // The coordinator stays to be read, but one that still works would use the cluster for ever.
    let works = |pod: &&PodView| pod.uses_cluster() && pod.end.is_none() && coordinates(pod);
    if policy == CleanPodPolicy::Running {
        for pod in seen.own_pods().filter(works) {
            if !goes(pod) && !pod.deleting && !pod.told_to_end {
                step.actions.push(Action::end_pod(pod));
            }
        }
    }
    expire(seen, step);
}

/// An end stands as soon as its condition or its phase does, whoever wrote it; the rest of the status must not contradict that.
fn tell_alike(seen: &Observed<'_>, status: &mut DIJobStatus) {
    if !status.phase.is_some_and(Phase::is_terminal) {
        let well = is_true(&status.conditions, ConditionType::Succeeded);
        status.phase = Some(if well {
            Phase::Succeeded
        } else {
            Phase::Failed
        });
    }
    status.completion_time.get_or_insert(Time(seen.now));
}

/// All services go, and the pods that `goes` selects; a service outlives its pod.
fn remove(seen: &Observed<'_>, step: &mut Step, goes: impl Fn(&PodView) -> bool) {
    for pod in seen.own_pods().filter(|pod| goes(pod) && !pod.deleting) {
        step.actions.push(Action::delete_pod(pod));
    }
    for service in seen.own_services().filter(|service| !service.deleting) {
        let pod_goes = seen
            .pod(&service.name)
            .is_some_and(|pod| pod.deleting || goes(pod));
        if !pod_goes {
            step.actions.push(Action::delete_service(service));
        }
    }
}

/// What is left of so many seconds.
fn left(seconds: i64, since: &Time, now: Timestamp) -> Option<Duration> {
    let left = seconds.saturating_sub(now.duration_since(since.0).as_secs());
    let left = u64::try_from(left).ok().filter(|left| *left > 0)?;
    Some(Duration::from_secs(left))
}

/// Deletes the job once it was kept long enough.
fn expire(seen: &Observed<'_>, step: &mut Step) {
    let (Some(ttl), Some(ended)) = (
        seen.job.spec.ttl_seconds_after_finished,
        &step.status.completion_time,
    ) else {
        return;
    };
    if let Some(left) = left(i64::from(ttl), ended, seen.now) {
        step.look_within(left);
    } else {
        step.actions.push(Action::DeleteJob);
    }
}

/// Fails a job that ran longer than it may.
pub(super) fn check_deadline(seen: &Observed<'_>, step: &mut Step) {
    let (Some(limit), Some(start)) = (
        seen.job.spec.active_deadline_seconds,
        &step.status.start_time,
    ) else {
        return;
    };
    if let Some(left) = left(limit, start, seen.now) {
        step.look_within(left);
    } else {
        let message = format!("the job ran longer than activeDeadlineSeconds, {limit} s");
        end(
            seen,
            step,
            Phase::Failed,
            Reason::DeadlineExceeded,
            &message,
        );
    }
}

/// Frees everything that a held job uses, and keeps its plan.
pub(super) fn suspend(seen: &Observed<'_>, step: &mut Step) {
    remove(seen, step, |_| true);
    coordinator::give_up(seen, step);
    coordinator::not_running(seen, step, Reason::Suspended, "the job is held");
    // The clock of activeDeadlineSeconds starts anew when the job does.
    step.status.start_time = None;
    let plan = &mut step.status.plan;
    for entry in plan.iter_mut() {
        entry.done |= replicas::has_done_its_work(seen, entry);
    }
    // A unit goes on as one, or has done its work as one.
    let undone = plan.iter().filter(|entry| !entry.done);
    let undone: HashSet<String> = undone.map(|e| units::leader(e).to_owned()).collect();
    for entry in plan {
        entry.done &= !undone.contains(units::leader(entry));
        entry.uid = None;
        entry.reported = false;
    }
    if seen.own_pods().next().is_none() {
        if step.status.phase != Some(Phase::Suspended) {
            // A cache may be behind, and a pod may have been made although nobody was told so.
            let coordinator = names::coordinator(&seen.job.name_any());
            let planned = step.status.plan.iter().map(|entry| entry.name.clone());
            let all = planned.chain([coordinator]);
            step.ask = all.filter(|name| !seen.asked.contains_key(name)).collect();
            if !step.ask.is_empty() {
                return;
            }
            step.notes
                .push(Note::normal(Reason::Suspended, conditions::HELD));
        }
        step.status.phase = Some(Phase::Suspended);
    } else {
        // It is held once no pod is left, but runs no longer.
        coordinator::not_there(step);
    }
}
