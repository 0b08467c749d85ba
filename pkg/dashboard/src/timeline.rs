//! The timeline of a job, from its status alone: it remains after the pods are deleted.

use di_api::{ConditionType, FailureRecord, PlanEntry, Reason, Role};
use di_client::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;

/// Maximum number of entries. A large job may have thousands of replacements.
const MAX_ENTRIES: usize = 200;

/// An entry of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Entry {
    at: Time,
    kind: &'static str,
    reason: String,
    message: String,
    severity: &'static str,
}

/// The newest entries of the timeline of a job, oldest first.
pub(crate) fn build_timeline(job: &Job) -> Vec<Entry> {
    let status = &job.status;
    let created = job.metadata.creation_timestamp.as_ref();
    let created = created.map(|at| Entry {
        at: at.clone(),
        kind: "created",
        reason: "Created".to_owned(),
        message: format!("{} was created", job.resource_name()),
        severity: "info",
    });
    let conditions = status.conditions.iter();
    let conditions = conditions.map(|condition| condition_entry(condition, status.has_ended()));
    let failures = status.failures.iter().map(|failure| {
        let restarts = failure.role == Role::Coordinator && !job.has_ended();
        failure_entry(failure, restarts)
    });
    let replacements = status.plan.iter().filter_map(replacement_entry);
    let mut entries: Vec<_> = created
        .into_iter()
        .chain(conditions)
        .chain(failures)
        .chain(replacements)
        .collect();
    entries.sort_by_key(|entry| entry.at.0);
    entries.split_off(entries.len().saturating_sub(MAX_ENTRIES))
}

fn condition_entry(condition: &Condition, has_ended: bool) -> Entry {
    let is_true = condition.status == "True";
    let has_type = |type_: ConditionType| condition.type_ == type_.as_str();
    let evictions = [
        Reason::QueuePreempted,
        Reason::QueueEvicted,
        Reason::QueueDeactivated,
    ];
    let is_eviction = evictions.iter().any(|one| one.as_str() == condition.reason);
    let severity = if is_true && has_type(ConditionType::Failed) {
        "error"
    } else if is_true && has_type(ConditionType::Succeeded) {
        "ok"
    } else if is_eviction || (!is_true && has_type(ConditionType::ReplicasReady) && !has_ended) {
        "warning"
    } else {
        "info"
    };
    Entry {
        at: condition.last_transition_time.clone(),
        kind: if is_eviction { "eviction" } else { "condition" },
        reason: condition.reason.clone(),
        message: format!(
            "{}={}: {}",
            condition.type_, condition.status, condition.message
        ),
        severity,
    }
}

/// `restarts` if the coordinator was restarted after the failure.
fn failure_entry(failure: &FailureRecord, restarts: bool) -> Entry {
    let is_eviction = matches!(failure.reason.as_str(), "Evicted" | "Preempting");
    let exit = failure.exit_code.map(|code| format!(" exit code {code}"));
    let times = (failure.count > 1).then(|| format!(" ({} times)", failure.count));
    let message = format!(
        "{}:{}{}",
        failure.pod,
        exit.unwrap_or_else(|| " did not run".to_owned()),
        times.unwrap_or_default()
    );
    Entry {
        at: failure.at.clone(),
        kind: match (is_eviction, restarts) {
            (true, _) => "eviction",
            (false, true) => "restart",
            (false, false) => "failure",
        },
        reason: failure.reason.clone(),
        message,
        severity: if is_eviction { "warning" } else { "error" },
    }
}

fn replacement_entry(entry: &PlanEntry) -> Option<Entry> {
    let replaced = entry.replaces.as_ref()?;
    Some(Entry {
        at: Time(entry.planned_at.as_ref()?.0),
        kind: "replacement",
        reason: "Replaced".to_owned(),
        message: format!("{} replaces {replaced}", entry.name),
        severity: "info",
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn timeline_has_all_that_happened_in_order() {
        let at = |second: u32| format!("2026-01-01T00:00:{second:02}Z");
        let condition = |type_: &str, status: &str, reason: &str, second| {
            json!({
                "type": type_, "status": status, "reason": reason, "message": "m",
                "lastTransitionTime": at(second),
            })
        };
        let failure = |role: &str, reason: &str, count: i32, second| {
            json!({
                "pod": "p", "role": role, "uid": "u", "exitCode": 137, "reason": reason,
                "at": at(second), "count": count,
            })
        };
        let status = json!({
            "phase": "Running",
            "conditions": [
                condition("Running", "True", "CoordinatorRunning", 2),
                condition("ReplicasReady", "False", "NodeLost", 6),
                condition("Admitted", "False", "QueuePreempted", 4),
                condition("Failed", "True", "DeadlineExceeded", 9),
                condition("Succeeded", "True", "CoordinatorSucceeded", 10),
            ],
            "failures": [
                failure("Collector", "OOMKilled", 3, 3),
                failure("Collector", "Evicted", 1, 7),
                failure("Coordinator", "Error", 1, 8),
            ],
            "plan": [
                {"name": "new", "type": "Collector", "origin": "Declared", "index": 0,
                 "replaces": "old", "plannedAt": "2026-01-01T00:00:05.000000Z"},
                {"name": "first", "type": "Collector", "origin": "Declared", "index": 1},
            ],
        });
        let created = json!({"creationTimestamp": at(1)});
        let job = di_fixtures::Job::test().metadata(created).status(status);
        let timeline = build_timeline(&job.json().into());
        let lines: Vec<_> = timeline
            .iter()
            .map(|entry| format!("{} {} {}", entry.kind, entry.severity, entry.message))
            .collect();
        assert_eq!(
            lines,
            [
                "created info dijobs/j was created",
                "condition info Running=True: m",
                "failure error p: exit code 137 (3 times)",
                "eviction warning Admitted=False: m",
                "replacement info new replaces old",
                "condition info ReplicasReady=False: m",
                "eviction warning p: exit code 137",
                "restart error p: exit code 137",
                "condition error Failed=True: m",
                "condition ok Succeeded=True: m",
            ]
        );
    }

    #[test]
    fn timeline_of_large_job_has_the_newest_entries() {
        let entry = |index: usize| {
            let at = format!("2026-01-01T00:00:00.{index:06}Z");
            json!({
                "name": format!("new-{index}"), "type": "Collector", "origin": "Declared",
                "index": index, "replaces": "old", "plannedAt": at,
            })
        };
        let plan: Vec<_> = (0..MAX_ENTRIES + 100).map(entry).collect();
        let job = di_fixtures::Job::test().status(json!({"plan": plan}));
        let timeline = build_timeline(&job.json().into());
        assert_eq!(timeline.len(), MAX_ENTRIES);
        assert_eq!(timeline[0].message, "new-100 replaces old");
    }
}
