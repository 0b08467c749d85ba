//! Problems of gangs, for the conditions.

use std::collections::BTreeSet;

use di_api::{DIJobStatus, PlanEntry, Reason};
use di_cache::OptionalApi;
use di_plan::GangScheduler;

use super::{
    super::observed::Observed,
    lookup::{
        asks_for_gang, find_floor, find_group, find_setup_problem, floor_pods, has_gang, is_own,
        is_placed, runs_on_node,
    },
};

/// Returns reason and message if a job lacks the gang that it asks for, or keeps one whose group or
/// scheduler cannot be used. It is no reason to wait.
pub fn gang_warning(
    observed: &Observed,
    status: &DIJobStatus,
    plan: &[PlanEntry],
) -> Option<(Reason, String)> {
    if must_have_no_pods(observed, status) {
        return None;
    }
    let has_gang = has_gang(observed, status, plan);
    if has_gang && let Some(problem) = group_access_problem(observed) {
        return Some(problem);
    }
    let problem = find_setup_problem(observed, plan);
    if problem.is_none() && (has_gang || !asks_for_gang(observed)) {
        return None;
    }
    let message = problem.or_else(|| {
        let version = unserved_api_version(observed)?;
        Some(format!(
            "spec.scheduling.gang has no effect: the cluster does not serve PodGroups of {version}"
        ))
    });
    let message = message.unwrap_or_else(|| {
        "spec.scheduling.gang has no effect until the job is suspended and resumed: its pods were created without a gang".to_owned()
    });
    Some((Reason::NoGangScheduler, message))
}

/// Returns reason and message if the pods of the gang have no nodes yet.
pub fn waiting_problem(observed: &Observed, status: &DIJobStatus) -> Option<(Reason, String)> {
    if must_have_no_pods(observed, status) || !has_gang(observed, status, &status.plan) {
        return None;
    }
    let is_placed = is_placed(status);
    if let Some(problem) = group_access_problem(observed) {
        return (!is_placed).then_some(problem);
    }
    // A waiting gang reports its placed pods also while the groups are not listed.
    if observed.gang.api == OptionalApi::Unknown && status.scheduling.is_none() {
        let message = "the PodGroups of the gang scheduler are not listed yet".to_owned();
        return Some((Reason::GangWaiting, message));
    }
    match find_group(observed) {
        Some(group) if !is_own(observed, group) => {
            let message = format!(
                "PodGroup {} exists and does not belong to this job; delete it",
                group.name
            );
            return Some((Reason::GangNameTaken, message));
        }
        Some(group) if group.deleting => {
            let message = format!("PodGroup {} is being deleted", group.name);
            return Some((Reason::GangWaiting, message));
        }
        _ if is_placed => return None,
        _ => {}
    }
    let floor = find_floor(observed, &status.plan)?;
    let placed = floor_pods(observed, &floor).filter(|pod| pod.is_some_and(runs_on_node));
    let message = format!(
        "gang: {} of {} placed{}",
        placed.count(),
        floor.len() + 1,
        describe_shortage(observed, &floor)
    );
    Some((Reason::GangWaiting, message))
}

/// Returns reason and message if the group of a gang can be neither seen nor changed.
fn group_access_problem(observed: &Observed) -> Option<(Reason, String)> {
    if let Some(version) = unserved_api_version(observed) {
        let message = format!(
            "the cluster does not serve PodGroups of {version}: waiting pods of the gang may not start until it does; suspend and resume the job to run it without a gang"
        );
        return Some((Reason::NoGangScheduler, message));
    }
    let scheduler = observed.gang.scheduler.as_ref()?;
    (observed.gang.api == OptionalApi::Forbidden).then(|| {
        let message = format!(
            "the orchestrator may not use PodGroups; to grant the permissions, run: kubectl di install --gang-scheduler={scheduler}"
        );
        (Reason::GangForbidden, message)
    })
}

/// Returns the version of the API of groups if the cluster does not serve it.
fn unserved_api_version(observed: &Observed) -> Option<String> {
    let scheduler = observed.gang.scheduler.as_ref();
    let kind = scheduler.and_then(GangScheduler::group_kind)?;
    (observed.gang.api == OptionalApi::NotServed).then(|| kind.api_version())
}

/// Returns the resources that nodes lack for the floor, else the first message of the scheduler.
fn describe_shortage(observed: &Observed, floor: &BTreeSet<&str>) -> String {
    let pods = floor_pods(observed, floor).flatten();
    let pods = pods.filter(|pod| pod.is_active() && !pod.deleting);
    let messages: Vec<&str> = pods
        .filter_map(|pod| pod.scheduled.as_ref().err())
        .map(String::as_str)
        .collect();
    let resources: BTreeSet<&str> = messages
        .iter()
        .flat_map(|message| message.split("Insufficient ").skip(1))
        .filter_map(|rest| rest.split_whitespace().next())
        .map(|name| name.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()))
        .collect();
    if resources.is_empty() {
        let first = messages.first();
        return first.map_or(String::new(), |message| format!(": {message}"));
    }
    let resources: Vec<_> = resources.into_iter().collect();
    format!(", waiting for {}", resources.join(", "))
}

/// Returns true if the job must have no pods now.
fn must_have_no_pods(observed: &Observed, status: &DIJobStatus) -> bool {
    let waits_in_queue = observed.job.queue_name().is_some() && status.queueing.is_none();
    observed.job.spec.suspend || waits_in_queue
}
