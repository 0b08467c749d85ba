//! Jobs and replicas as the page shows them: pure functions of the observed state.

use di_api::{ConditionType, find_condition};
use di_client::{Event, Job, Replica};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    actions::{Access, LOGS, declared_count, list_buttons},
    timeline::build_timeline,
};

/// The key of a job in the list.
pub(crate) fn job_key(job: &Job) -> String {
    format!("{}/{}", job.namespace(), job.name())
}

/// The row of a job in the list.
pub(crate) fn job_row(job: &Job) -> Value {
    let status = &job.status;
    json!({
        "key": job_key(job),
        "namespace": job.namespace(),
        "name": job.name(),
        "phase": status.phase,
        "reason": status.reason,
        "message": problem_message(job),
        "suspended": job.is_suspended(),
        "deleting": job.metadata.deletion_timestamp.is_some(),
        "ended": job.has_ended(),
        "collectors": {
            "declared": declared_count(job, "collector"),
            "wanted": status.collectors,
            "ready": status.collectors_ready,
        },
        "learners": {
            "declared": declared_count(job, "learner"),
            "wanted": status.learners,
            "ready": status.learners_ready,
        },
        "restarts": status.restarts,
        "gpus": job.gpu_count(),
        "queue": job.queue_name(),
        "waitingReplicas": job.waiting_replicas().total(),
        "created": job.metadata.creation_timestamp,
        "completed": status.completion_time,
    })
}

/// The reason for which a job failed, or its most severe problem.
fn problem_message(job: &Job) -> Option<String> {
    let failed = find_condition(&job.status.conditions, ConditionType::Failed);
    let failed = failed.filter(|failed| failed.status == "True");
    let failed = failed.map(|failed| format!("{}: {}", failed.reason, failed.message));
    failed.or_else(|| job.problem_summary())
}

/// The open job: its row, and the details that the list does not show.
pub(crate) fn job_details(job: &Job, access: &Access, pods_hidden: Option<&str>) -> Value {
    let status = &job.status;
    let conditions = status.conditions.iter().map(|condition| {
        json!({
            "type": condition.type_,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "since": condition.last_transition_time,
        })
    });
    let gang = status
        .scheduling
        .as_ref()
        .map(|gang| json!({"group": gang.group, "floor": gang.min_member, "placed": gang.placed}));
    let details = json!({
        "uid": job.metadata.uid,
        "started": status.start_time,
        "clusterQueue": job.cluster_queue(),
        "gang": gang,
        "conditions": conditions.collect::<Vec<_>>(),
        "failures": status.failures,
        "timeline": build_timeline(job),
        "podsHidden": pods_hidden,
        "actions": list_buttons(job, access),
        "training": {"disabled": access.training_disabled(job)},
        "logs": {"disabled": access.disabled(LOGS)},
    });
    merge_fields(job_row(job), details)
}

/// The row of a replica. Only rows that changed become JSON: a job may have 2,000 of them.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct ReplicaRow {
    #[serde(flatten)]
    replica: Replica,
    status: String,
    /// Sorts the rows: the coordinator is the first one.
    order: usize,
}

/// The rows of the replicas by name.
pub(crate) fn replica_rows(replicas: Vec<Replica>) -> Vec<(String, ReplicaRow)> {
    let rows = replicas.into_iter().enumerate().map(|(order, replica)| {
        let (name, status) = (replica.name.clone(), replica.display_status().to_owned());
        let row = ReplicaRow {
            replica,
            status,
            order,
        };
        (name, row)
    });
    rows.collect()
}

/// An event of a job or of its replicas.
pub(crate) fn event_row(event: &Event) -> Value {
    json!({
        "type": event.type_,
        "reason": event.reason,
        "message": event.message,
        "source": event.source,
        "about": event.about,
        "count": event.count,
        "first": event.first.map(Time),
        "last": event.last.map(Time),
    })
}

/// Adds the fields of `more` to an object.
fn merge_fields(mut object: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut object, more) {
        fields.extend(more);
    }
    object
}

#[cfg(test)]
mod tests {
    use di_client::join_plan_with_pods;

    use super::*;

    fn job() -> di_fixtures::Job {
        di_fixtures::Job::test()
            .collectors(2)
            .metadata(json!({"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}))
            .metadata(json!({"creationTimestamp": "2026-01-01T00:00:00Z"}))
            .status(json!({
                "phase": "Running", "reason": "NodeLost", "restarts": 1,
                "collectors": 3, "collectorsReady": "2/3",
                "conditions": [{
                    "type": "ReplicasReady", "status": "False", "reason": "NodeLost",
                    "message": "node n does not respond",
                    "lastTransitionTime": "2026-01-01T00:01:00Z",
                }],
                "plan": [
                    {"name": "j-collector-aaaaa", "type": "Collector", "origin": "Declared",
                     "index": 0},
                    {"name": "j-collector-bbbbb", "type": "Collector", "origin": "Requested",
                     "index": 1, "queue": "Waiting"},
                ],
            }))
    }

    #[test]
    fn job_row_has_state_counts_and_problem() {
        let row = job_row(&job().json().into());
        assert_eq!(
            row,
            json!({
                "key": "rl/j", "namespace": "rl", "name": "j",
                "phase": "Running", "reason": "NodeLost",
                "message": "NodeLost: node n does not respond",
                "suspended": false, "deleting": false, "ended": false,
                "collectors": {"declared": 2, "wanted": 3, "ready": "2/3"},
                "learners": {"declared": 0, "wanted": 0, "ready": null},
                "restarts": 1, "gpus": 0, "queue": "team-a", "waitingReplicas": 1,
                "created": "2026-01-01T00:00:00Z", "completed": null,
            })
        );
    }

    #[test]
    fn failed_job_shows_why_it_failed() {
        let failed = json!({"phase": "Failed", "reason": "CoordinatorFailed", "conditions": [{
            "type": "Failed", "status": "True", "reason": "CoordinatorFailed",
            "message": "exit code 1", "lastTransitionTime": "2026-01-01T00:01:00Z",
        }]});
        let row = job_row(&job().status(failed).json().into());
        assert_eq!(row["message"], "CoordinatorFailed: exit code 1");
        assert_eq!(row["ended"], true);
        // The status of a new job is empty.
        let new = job_row(&di_fixtures::Job::test().json().into());
        assert_eq!(
            (&new["phase"], &new["message"]),
            (&Value::Null, &Value::Null)
        );
    }

    #[test]
    fn details_have_the_row_and_what_is_hidden() {
        let access = Access {
            namespace: "rl".to_owned(),
            refused: Some(Vec::new()),
            read_only: false,
        };
        let job = job().json().into();
        let details = job_details(&job, &access, Some("no pods"));
        assert_eq!(details["uid"], "u");
        assert_eq!(details["key"], "rl/j");
        assert_eq!(details["podsHidden"], "no pods");
        assert_eq!(details["conditions"][0]["since"], "2026-01-01T00:01:00Z");
        assert_eq!(details["actions"].as_array().unwrap().len(), 8);
        assert_eq!(details["logs"]["disabled"], Value::Null);
        assert_eq!(details["timeline"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn replica_rows_have_status_and_order() {
        let job = job().json().into();
        let pod = di_fixtures::Pod::test("j-collector-aaaaa", "collector").phase("Running");
        let rows = replica_rows(join_plan_with_pods(&job, &[pod.build()]));
        let rows: Vec<_> = rows.iter().map(|(_, row)| json!(row)).collect();
        let shown: Vec<_> = rows
            .iter()
            .map(|row| format!("{} {} {}", row["name"], row["status"], row["order"]))
            .collect();
        assert_eq!(
            shown,
            [
                "\"j-coordinator\" \"Planned\" 0",
                "\"j-collector-aaaaa\" \"Running\" 1",
                "\"j-collector-bbbbb\" \"Queued\" 2",
            ]
        );
        assert_eq!(rows[1]["pod"]["containers"], 1);
    }
}
