//! Records the failures of pods in the status, where they remain after the pods are deleted.

use di_api::{DIJobStatus, FailureRecord, Role, validation::truncate_text};
use di_plan::{End, MAX_FAILURES_BYTES, PodView};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::observed::Observed;

/// Maximum number of records. Failures with the same role, exit code and reason are one record.
const MAX_RECORDS: usize = 10;

/// Maximum length of a log line in a message, in bytes.
const MAX_LINE_BYTES: usize = 300;

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

/// Returns the record of a failed pod; `None` if it has not failed.
pub(super) fn failure_of_pod(observed: &Observed, pod: &PodView) -> Option<FailureRecord> {
    let end = pod.end.as_ref().filter(|end| !end.has_succeeded())?;
    let role = pod.role?;
    Some(FailureRecord {
        pod: pod.name.clone(),
        role,
        index: pod.index.filter(|_| role != Role::Coordinator),
        uid: pod.uid.clone(),
        node: pod.node.clone(),
        exit_code: end.exit_code,
        reason: end.reason.clone(),
        at: Time(end.at.unwrap_or(observed.now)),
        count: 1,
        tail: log_tail(observed, end).map(str::to_owned),
    })
}

/// Adds failures to the status, and drops the oldest tails and records beyond the limits.
pub(super) fn record_failures(
    status: &mut DIJobStatus,
    failures: impl IntoIterator<Item = FailureRecord>,
) {
    let all = &mut status.failures;
    for failure in failures {
        let is_same = |other: &FailureRecord| {
            (other.role, other.exit_code) == (failure.role, failure.exit_code)
                && other.reason == failure.reason
        };
        let same = all.iter().position(is_same);
        let earlier = same.map_or(0, |position| all.remove(position).count);
        let count = failure.count.saturating_add(earlier);
        all.insert(0, FailureRecord { count, ..failure });
        all.truncate(MAX_RECORDS);
    }
    // Escapes can double the length of a tail.
    let size = |all: &[FailureRecord]| serde_json::to_vec(all).map_or(0, |json| json.len());
    while size(all) > MAX_FAILURES_BYTES {
        match all.iter_mut().rev().find(|record| record.tail.is_some()) {
            Some(oldest) => oldest.tail = None,
            None => all.truncate(all.len() - 1),
        }
    }
}
