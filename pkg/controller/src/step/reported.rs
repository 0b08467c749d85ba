//! Replicas that the coordinator reports as failed. Their replacements are in the plan already.

use std::{collections::HashSet, time::Duration};

use di_api::PlanEntry;
use di_plan::{End, PodView, group_members};
use jiff::SignedDuration;

use super::{
    failures::{after_ignored_failure, evaluate_group, record_failures},
    observed::Observed,
    outcome::Step,
};

/// A coordinator may notice a failure before the kubelet reports it. With failure rules, the
/// replacement waits this long for the report, since it decides about the memory of the next pod.
const REPORT_TIMEOUT: SignedDuration = SignedDuration::from_secs(3);

/// The time of a step is in whole seconds, that of a plan entry is not.
const CLOCK_ROUNDING: SignedDuration = SignedDuration::from_secs(1);

/// Applies the failure rules to reported failures, each once, and emits their events.
///
/// Returns a message if a failure rule fails the job.
pub(super) fn evaluate_reported(
    observed: &Observed,
    plan: &mut [PlanEntry],
    step: &mut Step,
) -> Option<String> {
    let (mut replaced, mut records, mut job_failure) = (Vec::new(), Vec::new(), None);
    for i in 0..plan.len() {
        let Some(old) = reported_replica(&plan[i]).map(str::to_owned) else {
            continue;
        };
        let pods = group_pods(observed, plan, &old);
        let failed: Vec<_> = pods
            .iter()
            .filter_map(|pod| Some((*pod, failed_end(pod)?)))
            .collect();
        let remaining = REPORT_TIMEOUT - time_since_plan(observed, &plan[i]);
        let may_fail = pods.iter().any(|pod| pod.end.is_none() && !pod.deleting);
        let has_rules = !observed.job.spec.failure_rules.is_empty();
        // The clock of the endpoint may be ahead of ours.
        let is_recent = remaining.is_positive() && remaining <= REPORT_TIMEOUT + CLOCK_ROUNDING;
        if failed.is_empty() && may_fail && has_rules && is_recent {
            step.requeue_within(Duration::try_from(remaining).unwrap_or_default());
            continue;
        }
        let outcome = evaluate_group(observed, &plan[i], failed);
        outcome.apply_to(&mut plan[i]);
        if outcome.is_ignored {
            plan[i].attempt = (plan[i].attempt - 1).max(0);
            plan[i].not_before = after_ignored_failure(observed.now);
        }
        plan[i].done = outcome.is_done;
        plan[i].reported = false;
        let message = format!("{old} was reported as failed; {} replaces it", plan[i].name);
        replaced.push((old, message));
        records.extend(outcome.records);
        job_failure = job_failure.or(outcome.job_failure);
    }
    record_failures(step, records);
    step.emit_replaced(replaced);
    job_failure
}

/// Returns the names of entries that wait for the report of a kubelet: the replaced and the new
/// ones.
pub(super) fn awaiting_report(plan: &[PlanEntry]) -> HashSet<&str> {
    let pairs = plan
        .iter()
        .filter_map(|entry| Some([reported_replica(entry)?, &entry.name]));
    pairs.flatten().collect()
}

/// Returns the replica that an entry replaces because of a report that is not evaluated yet.
fn reported_replica(entry: &PlanEntry) -> Option<&str> {
    let is_new = entry.reported && entry.uid.is_none() && entry.is_wanted();
    entry.replaces.as_deref().filter(|_| is_new)
}

/// Returns the pods of a replica, and of its ddp learners.
fn group_pods<'a>(observed: &'a Observed, plan: &[PlanEntry], owner: &str) -> Vec<&'a PodView> {
    let members = group_members(plan, owner).map(|entry| entry.name.as_str());
    let names = members.chain([owner]);
    names.filter_map(|name| observed.own_pod(name)).collect()
}

/// Returns the end of a pod that has failed. The exit code of a deleted pod is no failure.
fn failed_end(pod: &PodView) -> Option<&End> {
    let end = pod.end.as_deref()?;
    (!end.has_succeeded() && !pod.deleting).then_some(end)
}

fn time_since_plan(observed: &Observed, entry: &PlanEntry) -> SignedDuration {
    let planned = entry.planned_at.as_ref();
    planned.map_or(SignedDuration::MAX, |at| observed.now.duration_since(at.0))
}
