use std::{net::SocketAddr, time::Duration};

use axum::{
    body::Body,
    extract::{ConnectInfo, Request},
    http::header,
    response::Response,
};
use di_api::Role;
use di_cache::JobView;
use di_plan::PodView;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use crate::{Endpoint, Settings, State, fixture::*, polls::MAX_POLLS_PER_JOB};

const LIST: &str = "/v1alpha2/replicas?namespace=rl&coordinator=a-coordinator";

/// A job with two collectors, of which the first ones are listed in this generation.
fn job_with_members(version: u32, generation: i64, listed: usize) -> Value {
    let entry = |i: usize| {
        json!({
            "name": format!("c{i}"), "type": "Collector", "origin": "Requested", "index": i,
            "listed": i < listed,
        })
    };
    let status = json!({
        "phase": "Running", "membershipGeneration": generation, "plan": [entry(0), entry(1)],
    });
    let mut job = job("a", &status);
    job["metadata"]["resourceVersion"] = version.to_string().into();
    job
}

fn coordinator() -> PodView {
    let role = Role::Coordinator;
    pod("a", role, "a-coordinator", "a-uid", COORDINATOR)
}

fn fixture_with_members(settings: Settings, listed: usize) -> Fixture {
    fixture_with(settings, [job_with_members(5, 7, listed)], [coordinator()])
}

/// Records a newer version of the job.
fn record(state: &State, generation: i64, listed: usize) {
    let job: JobView = serde_json::from_value(job_with_members(6, generation, listed)).unwrap();
    state.jobs.record_write(job);
}

async fn get(state: State, path: String, etag: Option<&str>) -> Response {
    let mut request = Request::get(path);
    if let Some(etag) = etag {
        request = request.header(header::IF_NONE_MATCH, etag);
    }
    let mut request = request.body(Body::empty()).unwrap();
    let peer = SocketAddr::new(COORDINATOR.parse().unwrap(), 40000);
    request.extensions_mut().insert(ConnectInfo(peer));
    Endpoint::new(state).handle_request(request).await
}

/// Returns the generation and the number of collectors of a list.
async fn members(response: Response) -> (Option<i64>, usize) {
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let collectors = body["data"]["collectors"].as_array().unwrap();
    (body["data"]["generation"].as_i64(), collectors.len())
}

async fn until_polls_wait(state: &State, count: usize) {
    while state.polls.count() < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn list_has_generation_if_members_are_usable_replicas() {
    for (listed, plain, polled) in [
        (2, (Some(7), 2), (Some(7), 2)),
        (1, (None, 2), (Some(7), 1)),
    ] {
        let fixture = fixture_with_members(short_waits(), listed);
        let state = &fixture.state;
        let list = |query: &str| get(state.clone(), format!("{LIST}{query}"), None);
        assert_eq!(members(list("").await).await, plain);
        assert_eq!(members(list("&generation=0").await).await, polled);
        assert_eq!(members(list("&generation=7").await).await, polled);
        let all = get(state.clone(), "/v1alpha2/replicas".to_owned(), None).await;
        let body = all.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["data"][0]["generation"].as_i64(), plain.0);
    }
}

#[tokio::test]
async fn uncounted_members_are_listed_without_generation() {
    let mut job = job_with_members(5, 7, 2);
    job["status"]["membershipGeneration"] = Value::Null;
    let fixture = fixture_with(short_waits(), [job], [coordinator()]);
    for query in ["", "&generation=7&wait=30s"] {
        let response = get(fixture.state.clone(), format!("{LIST}{query}"), None).await;
        assert!(!response.headers().contains_key(header::ETAG));
        assert_eq!(members(response).await, (None, 2), "{query}");
    }
}

#[tokio::test]
async fn older_version_has_no_generation_and_no_polls() {
    let fixture = fixture_with_members(short_waits(), 2);
    let state = &fixture.state;
    let legacy = LIST.replace("v1alpha2", "v1alpha1");
    let response = get(state.clone(), legacy.clone(), Some("*")).await;
    assert!(!response.headers().contains_key(header::ETAG));
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let expected = r#"{"success":true,"code":0,"message":"","data":{"namespace":"rl","coordinator":"a-coordinator","collectors":["c0.rl:4000","c1.rl:4000"],"learners":[]}}"#;
    assert_eq!(body, expected);
    let response = get(state.clone(), format!("{legacy}&wait=1s"), None).await;
    assert_eq!(response.status(), 400);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let message =
        "unknown query parameter wait; known are namespace, coordinator, aggregator and name";
    assert!(String::from_utf8_lossy(&body).contains(message), "{body:?}");
}

#[tokio::test]
async fn known_etag_is_answered_with_304() {
    let fixture = fixture_with_members(short_waits(), 2);
    let state = &fixture.state;
    for (query, etag, code) in [
        ("", "\"a-uid.7\"", 304),
        ("", "\"a-uid.6\", W/\"a-uid.7\"", 304),
        ("", "\"a-uid.6\"", 200),
        ("", "\"b-uid.7\"", 200),
        ("&generation=6&wait=30s", "\"a-uid.7\"", 304),
    ] {
        let response = get(state.clone(), format!("{LIST}{query}"), Some(etag)).await;
        assert_eq!(response.status(), code, "{etag}");
        assert_eq!(response.headers()[header::ETAG], "\"a-uid.7\"");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body.is_empty(), code == 304);
    }
}

#[tokio::test]
async fn poll_waits_until_the_generation_changes() {
    let fixture = fixture_with_members(short_waits(), 1);
    let state = &fixture.state;
    let poll = get(state.clone(), format!("{LIST}&generation=7&wait=30s"), None);
    let change = async {
        until_polls_wait(state, 1).await;
        record(state, 8, 2);
    };
    let (response, ()) = tokio::join!(poll, change);
    assert_eq!(members(response).await, (Some(8), 2));
    assert_eq!(state.polls.count(), 0);
}

#[tokio::test]
async fn late_cache_does_not_answer_with_an_older_generation() {
    // The watch has not delivered generation 8, which the client has from another endpoint.
    let server = read_only_client(vec![job_with_members(6, 8, 1)]);
    let cached = vec![job_with_members(5, 7, 2)];
    let fixture = fixture_with_client(short_waits(), server, cached, [coordinator()]);
    let state = &fixture.state;
    let response = get(state.clone(), format!("{LIST}&generation=8"), None).await;
    assert_eq!(members(response).await, (Some(8), 1));
    // A lost status starts at 0 again.
    let response = get(state.clone(), format!("{LIST}&generation=9&wait=30s"), None).await;
    assert_eq!(members(response).await, (Some(8), 1));
}

#[tokio::test(start_paused = true)]
async fn poll_ends_with_its_wait_or_at_once() {
    let settings = Settings {
        request_timeout: Duration::from_secs(10),
        ..short_waits()
    };
    let fixture = fixture_with_members(settings, 2);
    for (query, seconds) in [
        ("generation=7&wait=5s", 5),
        ("generation=7&wait=9000s", 30),
        ("generation=7&wait=0s", 0),
        ("generation=7", 0),
        ("generation=6&wait=30s", 0),
    ] {
        let began = Instant::now();
        let response = get(fixture.state.clone(), format!("{LIST}&{query}"), None).await;
        assert_eq!(members(response).await, (Some(7), 2), "{query}");
        assert_eq!(began.elapsed().as_secs(), seconds, "{query}");
    }
}

#[tokio::test]
async fn polls_over_the_limit_are_rejected_until_others_end() {
    for (max_connections, limit) in [(4, 3), (1024, MAX_POLLS_PER_JOB)] {
        let settings = Settings {
            max_connections,
            ..short_waits()
        };
        let fixture = fixture_with_members(settings, 2);
        let state = &fixture.state;
        let poll = || get(state.clone(), format!("{LIST}&generation=7&wait=30s"), None);
        let mut polls = JoinSet::new();
        for _ in 0..limit {
            polls.spawn(poll());
        }
        until_polls_wait(state, limit).await;
        let rejected = poll().await;
        assert_eq!(rejected.status(), 429);
        assert!(rejected.headers().contains_key(header::RETRY_AFTER));
        // The endpoint shuts down.
        state.polls.close();
        while let Some(response) = polls.join_next().await {
            assert_eq!(members(response.unwrap()).await, (Some(7), 2));
        }
        assert_eq!(poll().await.status(), 200);
    }
}
