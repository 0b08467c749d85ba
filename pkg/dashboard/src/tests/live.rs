//! Live state: streams, permissions and slow pages.

use di_client::{JobQuery, LiveView};
use futures::{StreamExt, stream::BoxStream};
use serde_json::json;

use super::*;
use crate::watch::Page;

fn job() -> di_fixtures::Job {
    di_fixtures::Job::test().status(json!({
        "phase": "Running", "restarts": 0,
        "plan": [{
            "name": "j-collector-aaaaa", "type": "Collector", "origin": "Declared", "index": 0,
        }],
    }))
}

fn pod(phase: &str) -> Value {
    let pod = di_fixtures::Pod::test("j-collector-aaaaa", "collector");
    pod.phase(phase).json()
}

async fn fake_with_job() -> FakeCluster {
    let fake = FakeCluster::start().await;
    fake.apply("dijobs", &job().json());
    fake.apply("pods", &pod("Pending"));
    fake
}

/// Reads events `job` until the permissions are known.
async fn until_reviewed(events: &mut Lines) -> Value {
    loop {
        let job = events.next_event("job").await["job"].take();
        if job["logs"]["disabled"]["code"] != "unknown" {
            return job;
        }
    }
}

#[tokio::test]
async fn stream_has_complete_state_and_then_changes() {
    let fake = fake_with_job().await;
    let running = Running::start(&fake).await;
    let mut list = running.open("/api/watch").await;
    let jobs = list.next_event("jobs").await;
    assert_eq!(
        (&jobs["reset"], &jobs["removed"]),
        (&json!(true), &json!([]))
    );
    assert_eq!(jobs["changed"][0]["key"], "rl/j");

    let mut events = running.open("/api/watch?job=rl/j").await;
    let replicas = events.next_event("replicas").await;
    assert_eq!(replicas["reset"], true);
    let names: Vec<_> = replicas["changed"].as_array().unwrap().iter().collect();
    assert_eq!(names.len(), 2, "the coordinator and the collector");
    fake.apply("pods", &pod("Running"));
    let replicas = events.next_event("replicas").await;
    assert_eq!(replicas["reset"], false);
    assert_eq!(replicas["changed"].as_array().unwrap().len(), 1);
    assert_eq!(replicas["changed"][0]["status"], "Running");

    fake.apply("dijobs", &job().status(json!({"restarts": 7})).json());
    let jobs = list.next_event("jobs").await;
    assert_eq!(
        (&jobs["reset"], &jobs["removed"]),
        (&json!(false), &json!([]))
    );
    assert_eq!(jobs["changed"][0]["restarts"], 7);
    // A new stream has everything again.
    let mut again = running.open("/api/watch").await;
    assert_eq!(again.next_event("jobs").await["changed"][0]["restarts"], 7);

    fake.delete("dijobs", &job().json());
    assert_eq!(list.next_event("jobs").await["removed"], json!(["rl/j"]));
    while !events.next_event("job").await["job"].is_null() {}
    let removed = events.next_event("replicas").await["removed"].take();
    assert_eq!(removed.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn user_without_pods_sees_the_plan() {
    let fake = fake_with_job().await;
    for permission in ["list pods", "patch dijobs", "get pods/log"] {
        fake.refuse(permission);
    }
    let running = Running::start(&fake).await;
    let mut events = running.open("/api/watch?job=rl/j").await;
    let job = until_reviewed(&mut events).await;
    let disabled = |action: usize| &job["actions"][action]["disabled"]["code"];
    assert_eq!(
        (disabled(0), disabled(7)),
        (&json!("forbidden"), &Value::Null)
    );
    assert_eq!(
        job["actions"][0]["disabled"]["message"],
        "you may not patch dijobs in namespace rl"
    );
    assert_eq!(job["logs"]["disabled"]["code"], "forbidden");
    let hidden = job["podsHidden"].as_str().unwrap();
    assert!(hidden.contains("pods is forbidden"), "{hidden}");
    let mut events = running.open("/api/watch?job=rl/j").await;
    let replicas = events.next_event("replicas").await;
    assert_eq!(replicas["changed"][0]["unseen"], true);
}

#[tokio::test]
async fn refused_list_is_reported_as_a_problem() {
    let fake = FakeCluster::start().await;
    fake.refuse("list dijobs");
    let running = Running::start(&fake).await;
    let mut events = running.open("/api/watch").await;
    let problem = events.next_event("problem").await;
    let list = problem["list"].as_str().unwrap();
    assert!(list.contains("dijobs is forbidden"), "{list}");
    assert_eq!(problem["job"], Value::Null);
}

#[tokio::test]
async fn stream_over_the_limit_is_refused() {
    let fake = fake_with_job().await;
    let running = Running::start(&fake).await;
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(running.open("/api/watch").await);
    }
    let refused = (429, "tooManyRequests".to_owned());
    for line in ["GET /api/watch", "GET /api/jobs/rl/j/logs"] {
        let reply = running.send_own(line, "").await;
        assert_eq!(reply.error(), refused, "{line}");
    }
    let session = running.send_own("GET /api/session", "").await;
    assert_eq!(session.status, 200, "other requests are answered");
    drop(open);
    // The permits are released when the server notices that the streams are closed.
    let deadline = tokio::time::Instant::now() + LONG;
    let line = "GET /api/jobs/rl/other/logs";
    while running.send_own(line, "").await.error() == refused {
        assert!(tokio::time::Instant::now() < deadline);
    }
}

#[tokio::test]
async fn logs_over_the_limit_are_one_error_line() {
    let fake = fake_with_job().await;
    for index in 0..53 {
        let pod = di_fixtures::Pod::test(&format!("j-collector-{index:05}"), "collector");
        let container = json!({"name": "di-container", "state": {"running": {}}});
        let status = json!({"containerStatuses": [container]});
        fake.apply("pods", &pod.phase("Running").status(status).json());
    }
    let running = Running::start(&fake).await;
    let mut lines = running.open("/api/jobs/rl/j/logs").await;
    let line = lines.next().await;
    let expected = "{\"error\":\"3 more logs are not followed: 50 logs are followed already";
    assert!(line.starts_with(expected), "{line}");
}

/// The messages of a page that watches the list.
async fn page_messages(cluster: &Cluster) -> BoxStream<'static, (&'static str, Value)> {
    let permits = Arc::new(tokio::sync::Semaphore::new(1));
    let permit = permits.acquire_owned().await.unwrap();
    let view = LiveView::of_jobs(cluster, &JobQuery::default());
    Page::new(view, None, permit).into_messages().boxed()
}

#[tokio::test]
async fn slow_page_gets_the_newest_state_only() {
    const CHANGES: usize = 100;
    let fake = fake_with_job().await;
    let cluster = connect(&fake).await;
    let mut slow = page_messages(&cluster).await;
    slow.next().await.unwrap();
    let mut fast = page_messages(&cluster).await;
    fast.next().await.unwrap();
    for restarts in 1..=CHANGES {
        fake.apply(
            "dijobs",
            &job().status(json!({"restarts": restarts})).json(),
        );
    }
    for messages in [&mut fast, &mut slow] {
        let began = tokio::time::Instant::now();
        let mut frames: u128 = 0;
        loop {
            let (name, rows) = timeout(LONG, messages.next()).await.unwrap().unwrap();
            assert_eq!(name, "jobs");
            frames += 1;
            if rows["changed"][0]["restarts"] == CHANGES {
                break;
            }
        }
        let most = began.elapsed().as_millis() / 200 + 2;
        assert!(frames <= most, "{frames} frames");
    }
}
