//! Requests of jobs in a queue of Kueue.

use axum::{body::Body, extract::Request};
use di_api::{QueueState, RequestKind, Role, names};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{Settings, fixture::*, idempotency::history, versions::VERSIONS};

fn settings() -> Settings {
    Settings {
        allow_anonymous: true,
        ..short_waits()
    }
}

/// An admitted job in a queue.
fn queued_job(elastic: &str, plan: &Value) -> Value {
    let queueing = json!({"workload": "dijob-q-00000"});
    let mut job = job(
        "q",
        &json!({"phase": "Running", "plan": plan, "queueing": queueing}),
    );
    job["metadata"]["labels"] = json!({names::kueue::QUEUE_LABEL: "team-a"});
    job["spec"]["queueing"] = json!({"elastic": elastic});
    job
}

fn collector(index: usize, queue: Option<&str>) -> Value {
    json!({
        "name": format!("q-collector-{index}"), "type": "Collector", "origin": "Requested", "index": index,
        "queue": queue, "claimedBy": "earlier/0",
    })
}

fn add_body(collectors: usize) -> String {
    json!({"namespace": "rl", "coordinator": "q-coordinator", "collectors": {"replicas": collectors}})
        .to_string()
}

async fn add_collectors(fixture: &Fixture, version: &str, collectors: usize) -> TestResponse {
    let path = format!("{version}/replicas");
    send_request(fixture, UNKNOWN, "POST", &path, &add_body(collectors)).await
}

async fn list_collectors(fixture: &Fixture, version: &str) -> Value {
    let path = format!("{version}/replicas?namespace=rl&coordinator=q-coordinator");
    let response = send_request(fixture, UNKNOWN, "GET", &path, "").await;
    response.body["data"]["collectors"].clone()
}

#[tokio::test(start_paused = true)]
async fn queued_replicas_are_added_at_once_and_not_listed() {
    for (version, queued) in VERSIONS.into_iter().zip([None, Some(&json!(2))]) {
        let job = queued_job("PerReplica", &json!([]));
        let fixture = writable_fixture(settings(), job, []);
        let began = Instant::now();
        let response = add_collectors(&fixture, version, 2).await;
        assert_eq!(response.code, 200, "{}", response.body);
        assert!(began.elapsed() < settings().scheduling_wait);
        let data = &response.body["data"];
        assert_eq!(data["collectors"].as_array().unwrap().len(), 2);
        assert_eq!(data.get("queued"), queued, "{version}");
        assert_eq!(list_collectors(&fixture, version).await, json!([]));
    }
}

#[tokio::test]
async fn response_counts_queued_replicas_only_with_queue() {
    for (label, queued) in [("team-a", Some(&json!(0))), ("", None)] {
        let mut job = queued_job("PerReplica", &json!([]));
        job["metadata"]["labels"][names::kueue::QUEUE_LABEL] = label.into();
        let fixture = writable_fixture(settings(), job, []);
        let response = add_collectors(&fixture, "/v1alpha2", 0).await;
        assert_eq!(response.body["data"].get("queued"), queued, "{label}");
    }
}

#[tokio::test(start_paused = true)]
async fn full_queue_rejects_replicas_with_409() {
    let mut plan: Vec<_> = (0..62).map(|i| collector(i, Some("Waiting"))).collect();
    plan.push(collector(62, Some("Admitted")));
    plan.push(collector(63, None));
    let mut removed = collector(64, Some("Waiting"));
    removed["state"] = json!("Removing");
    plan.push(removed);
    for elastic in ["PerReplica", "Whole"] {
        let job = queued_job(elastic, &json!(plan));
        let fixture = writable_fixture(settings(), job, []);
        for version in VERSIONS {
            let response = add_collectors(&fixture, version, 3).await;
            let message = "the queue has no room: 62 replicas of DIJob q wait for quota already, and at most 64 may";
            assert_eq!(
                (response.code, &response.body["message"]),
                (409, &json!(message))
            );
        }
        let response = add_collectors(&fixture, "/v1alpha2", 2).await;
        assert_eq!(response.code, 200, "{}", response.body);
    }
}

#[tokio::test]
async fn elastic_none_rejects_replicas_with_409() {
    let job = queued_job("None", &json!([]));
    let fixture = writable_fixture(settings(), job, []);
    // DI-engine cannot parse the word None: see `to_client_safe`.
    let message = "spec.queueing.elastic of DIJob q is none, so it cannot add replicas; set it to PerReplica, or raise spec.collector.replicas";
    for version in VERSIONS {
        let response = add_collectors(&fixture, version, 1).await;
        assert_eq!(
            (response.code, &response.body["message"]),
            (409, &json!(message))
        );
        assert_eq!(add_collectors(&fixture, version, 0).await.code, 200);
    }
}

fn coordinator_pod() -> di_plan::PodView {
    pod(
        "q",
        Role::Coordinator,
        "q-coordinator",
        "q-uid",
        COORDINATOR,
    )
}

#[tokio::test]
async fn restarted_coordinator_reclaims_replicas_with_elastic_none() {
    let job = queued_job("None", &json!([collector(0, Some("Admitted"))]));
    let running = pod("q", Role::Collector, "q-collector-0", "q-uid", COLLECTOR);
    let fixture = writable_fixture(settings(), job, [coordinator_pod(), running]);
    let path = "/v1alpha2/replicas";
    for (collectors, code) in [(2, 409), (1, 200)] {
        let body = add_body(collectors);
        let response = send_request(&fixture, COORDINATOR, "POST", path, &body).await;
        assert_eq!(response.code, code, "{}", response.body);
    }
}

#[tokio::test(start_paused = true)]
async fn replay_is_answered_despite_elastic_none() {
    let mut entry = collector(0, Some("Waiting"));
    entry["requestKey"] = json!("key");
    let mut job = queued_job("None", &json!([entry]));
    let summary = "collectors 1, learners 0";
    let record = history::new_record(RequestKind::Add, "key", summary, Vec::new());
    job["status"]["requests"] = json!([record]);
    let fixture = writable_fixture(settings(), job, []);
    let request = Request::post("/v1alpha2/replicas").header("Idempotency-Key", "key");
    let request = request.body(Body::from(add_body(1))).unwrap();
    let response = send(&fixture, UNKNOWN, request).await;
    let data = &response.body["data"];
    assert_eq!(data["collectors"], json!(["q-collector-0.rl:4000"]));
    assert_eq!(data["queued"], 1);
}

/// The API server rejects the pod of a reclaimed replica.
#[tokio::test(start_paused = true)]
async fn rollback_keeps_queued_replicas() {
    let mut job = queued_job("PerReplica", &json!([collector(0, Some("Admitted"))]));
    job["status"]["conditions"] = json!([{
        "type": "ReplicasReady", "status": "False", "reason": "QuotaExceeded", "message": "no room",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    let fixture = writable_fixture(settings(), job, [coordinator_pod()]);
    let path = "/v1alpha2/replicas";
    let response = send_request(&fixture, COORDINATOR, "POST", path, &add_body(2)).await;
    assert_eq!(response.code, 503, "{}", response.body);
    let key = ("rl".to_owned(), "q".to_owned());
    let job = fixture.state.jobs.get(&key).unwrap();
    let wanted = job.plan.iter().filter(|entry| entry.is_wanted());
    let states: Vec<_> = wanted.map(|entry| entry.queue).collect();
    assert_eq!(states, [Some(QueueState::Waiting)]);
}

#[tokio::test]
async fn job_that_waits_in_its_queue_has_no_list() {
    let mut job = queued_job("PerReplica", &json!([collector(0, None)]));
    job["status"]["phase"] = json!("Queued");
    job["status"]["queueing"] = Value::Null;
    let fixture = fixture_with(settings(), [job], []);
    for version in VERSIONS {
        assert_eq!(list_collectors(&fixture, version).await, json!([]));
        let path = format!("{version}/replicas?namespace=rl");
        let response = send_request(&fixture, UNKNOWN, "GET", &path, "").await;
        assert_eq!(response.body["data"], json!([]));
    }
}
