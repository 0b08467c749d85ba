//! Failures of pods: what the failure rules decide, and the records in the status, which remain
//! after the pods are deleted. See docs/decisions/0034.

use std::collections::BTreeMap;

use di_api::{
    DIJobStatus, Failure, FailureAction, FailureRecord, FailureRule, PlanEntry, Reason, Role,
    find_rule, quantity::parse_nanos, validation::truncate_text,
};
use di_plan::{End, MAX_FAILURES_BYTES, PodView};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time};

use super::{observed::Observed, outcome::Step};

/// Maximum number of records. Failures with the same role, exit code and reason are one record.
const MAX_RECORDS: usize = 10;
/// Maximum length of a log line in a message, in bytes.
const MAX_LINE_BYTES: usize = 300;
/// Delay before the pod after a failure that a rule ignores.
const IGNORED_FAILURE_DELAY: SignedDuration = SignedDuration::from_secs(1);
/// Time after which a waiting container counts as failed, if a rule matches its reason. A short
/// problem of an image registry is no failure.
const WAITING_LIMIT: SignedDuration = SignedDuration::from_secs(60);

/// A failure with its action.
pub(super) struct PodFailure {
    /// The record for the status. It has the action.
    pub record: FailureRecord,
    /// The next memory of the replica, if a rule increases it.
    pub memory: Option<Quantity>,
    /// Description of the failure.
    pub cause: String,
}

/// Decides what happens after a failure of a pod. `matches` has the failures that rules with a
/// limit have matched so far.
pub(super) fn evaluate_failure(
    observed: &Observed,
    pod: &PodView,
    end: &End,
    matches: &mut BTreeMap<String, i32>,
) -> PodFailure {
    let role = pod.role.unwrap_or(Role::Collector);
    let found = find_rule(&observed.job.spec.failure_rules, failure_of(pod, end));
    let mut cause = format!("failed: {}", describe_end(observed, end));
    let mut action = FailureAction::Count;
    let mut memory = None;
    if let Some((name, rule)) = &found {
        action = rule.action;
        if let Some(limit) = rule.limit {
            let count = matches.entry(name.clone()).or_default();
            *count = count.saturating_add(1);
            if *count > limit {
                action = FailureAction::FailJob;
                cause =
                    format!("{cause}; the rule has matched {count} times, its limit is {limit}");
            }
        }
        memory = grown_memory(rule, pod);
    }
    let record = FailureRecord {
        pod: pod.name.clone(),
        role,
        index: pod.index.filter(|_| role != Role::Coordinator),
        uid: pod.uid.clone(),
        node: pod.node.clone(),
        exit_code: end.exit_code,
        reason: end.reason.clone(),
        at: Time(end.at.unwrap_or(observed.now)),
        count: 1,
        rule: found.map(|(name, _)| name),
        action,
        tail: log_tail(observed, end).map(str::to_owned),
    };
    PodFailure {
        record,
        memory,
        cause,
    }
}

impl PodFailure {
    /// The message of a job that fails by a rule.
    pub fn job_failure(&self) -> String {
        let FailureRecord { pod, rule, .. } = &self.record;
        let rule = rule.as_deref().unwrap_or_default();
        format!("failure rule {rule}: {pod} {}", self.cause)
    }
}

/// Outcome of the failures of a replica, or of its learner group.
#[derive(Default)]
pub(super) struct GroupOutcome {
    /// Records for the status.
    pub records: Vec<FailureRecord>,
    /// Message, if a rule fails the job.
    pub job_failure: Option<String>,
    /// Names of the replicas that count as succeeded.
    pub done: Vec<String>,
    /// Whether rules ignore all failures.
    pub is_ignored: bool,
    /// Whether rules count all failures as success.
    pub is_done: bool,
    rule_matches: BTreeMap<String, i32>,
    memory: Option<Quantity>,
}

impl GroupOutcome {
    /// Sets the matches of rules and the memory of the entry that replaces the group.
    pub fn apply_to(&self, entry: &mut PlanEntry) {
        entry.rule_matches.clone_from(&self.rule_matches);
        entry.memory.clone_from(&self.memory);
    }
}

/// Decides what happens after failures of the pods of one group. `owner` is the entry of the
/// replica, or of the aggregator. A rule counts failures of the same group once.
pub(super) fn evaluate_group<'a>(
    observed: &Observed,
    owner: &PlanEntry,
    failures: impl IntoIterator<Item = (&'a PodView, &'a End)>,
) -> GroupOutcome {
    let mut group = GroupOutcome {
        rule_matches: owner.rule_matches.clone(),
        memory: owner.memory.clone(),
        ..GroupOutcome::default()
    };
    for (pod, end) in failures {
        let mut matches = owner.rule_matches.clone();
        let failure = evaluate_failure(observed, pod, end, &mut matches);
        for (name, count) in matches {
            let known = group.rule_matches.entry(name).or_default();
            *known = count.max(*known);
        }
        group.memory = [group.memory.take(), failure.memory.clone()]
            .into_iter()
            .flatten()
            .max_by_key(|memory| parse_nanos(&memory.0));
        match failure.record.action {
            FailureAction::FailJob => group.job_failure = Some(failure.job_failure()),
            FailureAction::Done => group.done.push(pod.name.clone()),
            FailureAction::Count | FailureAction::Ignore => {}
        }
        group.records.push(failure.record);
    }
    let all = |action| {
        let mut actions = group.records.iter().map(|record| record.action);
        !group.records.is_empty() && actions.all(|other| other == action)
    };
    (group.is_ignored, group.is_done) = (all(FailureAction::Ignore), all(FailureAction::Done));
    group
}

/// Returns the time before which the pod after an ignored failure is not created.
pub(super) fn after_ignored_failure(now: Timestamp) -> Option<Time> {
    now.checked_add(IGNORED_FAILURE_DELAY).ok().map(Time)
}

/// A disruption by the cluster has no exit code of its own. See docs/decisions/0025.
fn failure_of<'a>(pod: &PodView, end: &'a End) -> Failure<'a> {
    Failure {
        role: pod.role.unwrap_or(Role::Collector),
        exit_code: end.exit_code.filter(|_| pod.counts_as_failure()),
        reason: &end.reason,
    }
}

fn grown_memory(rule: &FailureRule, pod: &PodView) -> Option<Quantity> {
    let growth = rule.grow_memory.as_ref()?;
    // The template of an aggregator belongs to no job.
    let memory = pod
        .memory
        .as_ref()
        .filter(|_| pod.role != Some(Role::Aggregator))?;
    growth.next_memory(memory)
}

/// Returns the end of a pod: of its main container, or of a waiting one, if a failure rule matches
/// the reason and a minute has passed.
pub(super) fn end_of_pod(observed: &Observed, pod: &PodView) -> Option<End> {
    if let Some(end) = pod.end.as_deref() {
        return Some(end.clone());
    }
    let (end, remaining) = matched_wait(observed, pod)?;
    (!remaining.is_positive()).then_some(end)
}

/// Requeues the job for the time when a waiting pod counts as failed.
pub(super) fn requeue_for_waiting(observed: &Observed, step: &mut Step) {
    if observed.job.spec.failure_rules.is_empty() {
        return;
    }
    let waits = observed
        .own_pods()
        .filter_map(|pod| matched_wait(observed, pod));
    let remaining = waits.map(|(_, remaining)| remaining);
    if let Some(first) = remaining.filter(SignedDuration::is_positive).min() {
        step.requeue_within(first.unsigned_abs());
    }
}

/// Returns the end of a pod that waits with a reason that a rule matches, and the time until it
/// counts.
fn matched_wait(observed: &Observed, pod: &PodView) -> Option<(End, SignedDuration)> {
    let since = observed.waiting_since.get(&pod.uid)?;
    let (reason, message) = waiting_reason(pod)?;
    let end = End {
        exit_code: None,
        reason: reason.to_string(),
        message: Some(message.to_owned()),
        at: Some(observed.now),
        log_tail: None,
    };
    find_rule(&observed.job.spec.failure_rules, failure_of(pod, &end))?;
    Some((end, WAITING_LIMIT - observed.now.duration_since(*since)))
}

/// Returns reason and message of a container that waits because its kubelet cannot start it, or
/// restarts it with a growing delay.
pub(crate) fn waiting_reason(pod: &PodView) -> Option<(Reason, &str)> {
    // Another container may wait while di-container runs.
    let waits = !pod.deleting && pod.end.is_none() && pod.started.is_none();
    let reason = pod.stuck_reason().filter(|_| waits)?;
    (reason.0 != Reason::Unschedulable).then_some(reason)
}

/// Describes an end with the line of the log that most likely says why: the last one with the word
/// error, or else the last one.
pub(super) fn describe_end(observed: &Observed, end: &End) -> String {
    let tail = log_tail(observed, end).unwrap_or_default();
    let has_error = |line: &&str| line.to_lowercase().contains("error");
    let mut lines = tail.lines();
    match lines.clone().rfind(has_error).or_else(|| lines.next_back()) {
        Some(line) => format!("{end}: {}", truncate_text(line.trim(), MAX_LINE_BYTES)),
        None => end.to_string(),
    }
}

fn log_tail<'a>(observed: &Observed, end: &'a End) -> Option<&'a str> {
    let tail = end.log_tail.as_deref();
    tail.filter(|_| observed.job.spec.failure_tails)
}

/// Adds failures to the status, and drops the oldest tails and records beyond the limits.
pub(super) fn record_failures(step: &mut Step, failures: impl IntoIterator<Item = FailureRecord>) {
    for failure in failures {
        step.failures
            .push((failure.role, failure.reason.clone(), failure.action));
        add_record(&mut step.status, failure);
    }
    let all = &mut step.status.failures;
    // Escapes can double the length of a tail.
    let size = |all: &[FailureRecord]| serde_json::to_vec(all).map_or(0, |json| json.len());
    while size(all) > MAX_FAILURES_BYTES {
        match all.iter_mut().rev().find(|record| record.tail.is_some()) {
            Some(oldest) => oldest.tail = None,
            None => all.truncate(all.len() - 1),
        }
    }
}

fn add_record(status: &mut DIJobStatus, failure: FailureRecord) {
    let all = &mut status.failures;
    let is_same = |other: &FailureRecord| {
        (other.role, other.exit_code) == (failure.role, failure.exit_code)
            && other.reason == failure.reason
    };
    let same = all.iter().position(is_same);
    let earlier = same.map(|position| all.remove(position));
    let (count, tail) = earlier.map_or((0, None), |earlier| (earlier.count, earlier.tail));
    let record = FailureRecord {
        count: failure.count.saturating_add(count),
        tail: failure.tail.or(tail),
        ..failure
    };
    all.insert(0, record);
    all.truncate(MAX_RECORDS);
}
