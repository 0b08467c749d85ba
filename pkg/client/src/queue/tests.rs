use di_api::names::kueue::QUEUE_LABEL;
use di_fixtures::{ApiServerMock, Reply};
use serde_json::json;

use super::*;

const MESSAGE: &str = "couldn't assign flavors to pod set collector";

fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": reason, "message": MESSAGE,
        "lastTransitionTime": "2026-01-01T00:01:00Z",
    })
}

/// A job in the queue `team-a`, with its name as UID.
fn job(name: &str, status: Value) -> Value {
    let metadata = json!({
        "labels": {QUEUE_LABEL: "team-a"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    let job = di_fixtures::Job::test().named(name).uid(name);
    job.metadata(metadata).status(status).json()
}

fn queued(name: &str) -> Value {
    let conditions = json!([condition("Admitted", "False", "QueueWaiting")]);
    let status = json!({"phase": "Queued", "reason": "QueueWaiting", "conditions": conditions});
    job(name, status)
}

/// A running job, of which three collectors and a learner group wait.
fn running(name: &str, reason: &str) -> Value {
    let entry = |role: &str, index: i32, minute: i32| {
        json!({
            "name": format!("{name}-{role}-{index}"), "type": role, "origin": "Requested", "index": index,
            "queue": "Waiting", "plannedAt": format!("2026-01-01T00:0{minute}:00.000000Z"),
        })
    };
    let mut done = entry("Collector", 3, 0);
    done["done"] = true.into();
    let mut admitted = entry("Collector", 4, 0);
    admitted["queue"] = "Admitted".into();
    job(
        name,
        json!({
            "phase": "Running", "reason": reason,
            "queueing": {"workload": format!("dijob-{name}-1f2e3"), "clusterQueue": "cq-a"},
            "conditions": [
                condition("Admitted", "True", "QueueAdmitted"),
                condition("ReplicasReady", "False", reason),
            ],
            "plan": [
                entry("Collector", 0, 5), entry("Collector", 1, 3), entry("Collector", 2, 4), done, admitted,
                entry("Aggregator", 0, 6), entry("DDPLearner", 0, 6), entry("DDPLearner", 1, 6),
            ],
        }),
    )
}

fn rows(jobs: &[Value], pending: &PendingByQueue) -> Vec<QueueRow> {
    let jobs: Vec<_> = jobs.iter().cloned().map(Job::from).collect();
    rows_from(&jobs, pending)
}

fn time(text: &str) -> Time {
    Time(text.parse().unwrap())
}

#[test]
fn queued_job_has_the_message_of_its_admission() {
    let row = rows(&[queued("j")], &PendingByQueue::new()).remove(0);
    let expected = QueueRow {
        namespace: "rl".to_owned(),
        name: "j".to_owned(),
        queue: Some("team-a".to_owned()),
        waits: true,
        waits_for_gang: false,
        waiting_replicas: WaitingReplicas::default(),
        position: None,
        since: Some(time("2026-01-01T00:01:00Z")),
        reason: Some("QueueWaiting".to_owned()),
        message: MESSAGE.to_owned(),
        cluster_queue: None,
    };
    assert_eq!(row, expected);
}

#[test]
fn queued_job_that_no_workload_can_have_says_so() {
    let mut job = queued("j");
    let problem = condition("ReplicasReady", "False", "QueueTooManyShapes");
    let conditions = job["status"]["conditions"].as_array_mut().unwrap();
    conditions.push(problem);
    let row = rows(&[job], &PendingByQueue::new()).remove(0);
    assert_eq!(row.reason.as_deref(), Some("QueueTooManyShapes"));
}

#[test]
fn preempted_job_waits_while_its_pods_end() {
    let mut job = running("j", "QueuePreempted");
    job["status"]["phase"] = "Created".into();
    job["status"]["queueing"] = json!(null);
    job["status"]["conditions"][0] = condition("Admitted", "False", "QueuePreempted");
    let row = rows(&[job], &PendingByQueue::new()).remove(0);
    assert!(row.waits && row.cluster_queue.is_none(), "{row:?}");
    assert_eq!(row.reason.as_deref(), Some("QueuePreempted"));
    assert_eq!(row.message, MESSAGE);
    assert_eq!(row.since, Some(time("2026-01-01T00:01:00Z")));
    assert_eq!(row.waiting_replicas.total(), 0, "its replicas wait with it");
}

#[test]
fn waiting_replicas_have_the_message_of_their_condition() {
    let row = rows(&[running("j", "QueueWaiting")], &PendingByQueue::new()).remove(0);
    assert_eq!(
        row.waiting_replicas.to_string(),
        "3 collectors and 1 learner"
    );
    assert_eq!(
        row.since,
        Some(time("2026-01-01T00:03:00Z")),
        "the longest wait"
    );
    assert_eq!(row.message, MESSAGE);
    assert_eq!(row.cluster_queue.as_deref(), Some("cq-a"));
    let row = rows(&[running("j", "FlavorConflict")], &PendingByQueue::new()).remove(0);
    assert_eq!(row.reason.as_deref(), Some("FlavorConflict"));
    assert_eq!(row.message, MESSAGE);
    // A more severe problem is not why they wait.
    let row = rows(&[running("j", "OOMKilled")], &PendingByQueue::new()).remove(0);
    assert_eq!(row.reason.as_deref(), Some("QueueWaiting"));
    assert_eq!(row.message, "");
}

#[test]
fn job_that_does_not_wait_has_only_its_admission() {
    let mut admitted = running("j", "AllReady");
    admitted["status"]["plan"] = json!([]);
    let row = rows(&[admitted], &PendingByQueue::new()).remove(0);
    assert!(!row.waits && row.since.is_none(), "{row:?}");
    assert_eq!(row.reason.as_deref(), Some("QueueAdmitted"));
    let mut suspended = running("j", "QueueWaiting");
    suspended["spec"]["suspend"] = true.into();
    let mut ended = running("j", "QueueWaiting");
    ended["status"]["phase"] = "Failed".into();
    for row in rows(&[suspended, ended], &PendingByQueue::new()) {
        assert!(!row.waits && row.waiting_replicas.total() == 0, "{row:?}");
    }
}

#[test]
fn job_that_waits_for_its_gang_has_that_queue_and_message() {
    let job = |reason: &str, placed: bool| {
        let mut job = running("j", reason);
        job["spec"]["scheduling"] = json!({"gang": {}, "queue": "research"});
        job["status"]["scheduling"] = json!({"group": "g", "minMember": 3, "placed": placed});
        job
    };
    let replica = PendingWorkload {
        name: "dijob-j-j-collector-0".to_owned(),
        position: 0,
    };
    let queue = ("rl".to_owned(), "team-a".to_owned());
    let pending = PendingByQueue::from([(queue, vec![replica])]);
    let row = rows(&[job("GangWaiting", false)], &pending).remove(0);
    assert!(row.waits && row.waits_for_gang, "{row:?}");
    assert_eq!(row.queue.as_deref(), Some("research"));
    assert_eq!(row.reason.as_deref(), Some("GangWaiting"));
    assert_eq!(row.message, MESSAGE);
    assert_eq!(row.since, Some(time("2026-01-01T00:01:00Z")));
    assert_eq!((row.position, row.waiting_replicas.total()), (None, 0));
    // The gang is kept while the API of its scheduler is not served.
    let row = rows(&[job("NoGangScheduler", false)], &pending).remove(0);
    assert!(row.waits_for_gang, "{row:?}");
    let mut without_gang = job("NoGangScheduler", false);
    without_gang["status"]["scheduling"] = json!(null);
    let row = rows(&[without_gang], &pending).remove(0);
    assert!(!row.waits_for_gang, "{row:?}");
    // The gang has started, so only the added replicas wait.
    let row = rows(&[job("GangNameTaken", true)], &pending).remove(0);
    assert!(row.waits && !row.waits_for_gang, "{row:?}");
    assert_eq!(row.queue.as_deref(), Some("team-a"));
    assert_eq!((row.position, row.waiting_replicas.total()), (Some(0), 4));
}

#[test]
fn position_is_that_of_the_first_workload_of_the_job() {
    let item = |name: &str, position: i64| {
        json!({
            "metadata": {"name": name},
            "positionInClusterQueue": 9, "positionInLocalQueue": position,
        })
    };
    // The UID of each job is its name.
    let summary = json!({"items": [
        item("dijob-earlier-earli", 0),
        item("dijob-second-secon-collector-1", 2),
        item("dijob-second-secon-collector-0", 1),
        item("dijob-third-third", 3),
        // Another job of the same name.
        item("dijob-fourth-delet", 4),
    ]});
    let queue = ("rl".to_owned(), "team-a".to_owned());
    let pending = PendingByQueue::from([(queue, parse_pending(&summary))]);
    let jobs = [
        running("second", "QueueWaiting"),
        queued("third"),
        queued("fourth"),
    ];
    let positions: Vec<_> = rows(&jobs, &pending)
        .iter()
        .map(|row| row.position)
        .collect();
    assert_eq!(positions, [Some(1), Some(3), None]);
}

/// The mock of an API server with a queued job, whose older Kueue replies with `pending`.
fn mock_cluster(pending: Reply) -> (ApiServerMock, Cluster) {
    let (mock, client) = ApiServerMock::new(move |request| {
        let path = request.path.as_str();
        if path.ends_with("/localqueues/team-a/pendingworkloads") {
            if path.contains("/v1beta1/namespaces/rl/") {
                pending.clone()
            } else {
                Reply::error(404, "the server could not find the requested resource")
            }
        } else {
            let items = [queued("j"), job("new", json!({}))];
            Reply::Object(
                200,
                json!({
                    "kind": "DIJobList", "apiVersion": "diengine.opendilab.org/v1alpha2",
                    "metadata": {"resourceVersion": "1"}, "items": items,
                }),
            )
        }
    });
    (mock, Cluster::for_test_client(client))
}

#[tokio::test]
async fn older_visibility_api_is_used_if_it_is_served() {
    let items = json!([{
        "metadata": {"name": "dijob-j-j"},
        "positionInLocalQueue": 2,
    }]);
    let (_, cluster) = mock_cluster(Reply::Object(200, json!({"items": items})));
    let rows = list_queue(&cluster, None, true).await.unwrap();
    assert_eq!(rows.len(), 1, "only jobs that wait: {rows:?}");
    assert_eq!(rows[0].position, Some(2));
}

#[tokio::test]
async fn forbidden_positions_are_unknown() {
    let (mock, cluster) = mock_cluster(Reply::error(403, "forbidden"));
    let rows = list_queue(&cluster, None, true).await.unwrap();
    assert_eq!((rows[0].waits, rows[0].position), (true, None));
    // The list of jobs, and a request to each version.
    assert_eq!(mock.requests().len(), 3);
}
