use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use axum::{
    body::{Body, Bytes},
    http::Request,
};
use di_fixtures::{ApiServerMock, Reply};
use futures::{
    StreamExt,
    future::join_all,
    stream::{self, pending},
};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tower::{ServiceExt, service_fn};

use super::*;

/// Access with a mock API server that sends this reply to each `SubjectAccessReview`.
fn mock_access(reply: Reply) -> Access {
    let client = ApiServerMock::client(move |_| reply.clone());
    Access::new(client, Duration::ZERO)
}

/// The reply to a `SubjectAccessReview` with this status.
fn access_reply(status: &serde_json::Value) -> Reply {
    let review = json!({"metadata": {}, "spec": {}, "status": status});
    Reply::Object(201, review)
}

fn allowed_reply() -> Reply {
    access_reply(&json!({"allowed": true}))
}

/// A router with a mock API server that allows everything.
pub(super) fn open_router() -> Router {
    router(mock_access(allowed_reply()), None, None, Metrics::default())
}

async fn post_to(path: &str, body: impl Into<Body>) -> (StatusCode, String) {
    post_with(open_router(), path, body).await
}

async fn post_with(router: Router, path: &str, body: impl Into<Body>) -> (StatusCode, String) {
    let request = Request::post(path).body(body.into()).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

pub(super) fn review_with_policy(policy: &str) -> String {
    let gvk = r#""group": "diengine.opendilab.org", "version": "v1alpha1""#;
    format!(
        r#"{{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {{
            "uid": "1", "kind": {{{gvk}, "kind": "DIJob"}}, "resource": {{{gvk}, "resource": "dijobs"}},
            "operation": "CREATE", "userInfo": {{}}, "object": {{
                "metadata": {{"name": "j"}}, "spec": {{"cleanPodPolicy": "{policy}", "coordinator": {{
                    "template": {{"spec": {{"containers": [{{"name": "di-container", "image": "i"}}]}}}}}}}}}}}}}}"#
    )
}

#[tokio::test]
async fn reviews_are_handled_at_their_paths() {
    for (path, policy, expected) in [
        ("/validate", "None", r#""allowed":true"#),
        ("/validate", "Never", r#""allowed":false"#),
        ("/mutate", "ALL", r#""patch":""#),
    ] {
        let (status, body) = post_to(path, review_with_policy(policy)).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert!(body.contains(expected), "{body}");
    }
}

#[tokio::test]
async fn other_requests_are_rejected() {
    let large = "x".repeat(MAX_BODY_BYTES + 1);
    for (path, body, expected) in [
        ("/validate", "{}", StatusCode::BAD_REQUEST),
        ("/mutate", "", StatusCode::BAD_REQUEST),
        ("/mutate", &large, StatusCode::PAYLOAD_TOO_LARGE),
        ("/", "{}", StatusCode::NOT_FOUND),
        ("/validate/", "{}", StatusCode::NOT_FOUND),
    ] {
        let (status, message) = post_to(path, body.to_owned()).await;
        assert_eq!(status, expected, "{path}: {message}");
        assert!(status != StatusCode::BAD_REQUEST || message.contains("malformed"));
    }
}

#[tokio::test(start_paused = true)]
async fn missing_body_times_out() {
    let never = Body::from_stream(pending::<Result<Bytes, Infallible>>());
    let (status, _) = post_to("/validate", never).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn review_outcomes_are_counted() {
    let broken = Reply::Object(500, json!("broken"));
    for (reply, body, outcome) in [
        (allowed_reply(), review_with_policy("None"), "allowed"),
        (allowed_reply(), review_with_policy("Never"), "denied"),
        (broken, review_with_policy("None"), "undecided"),
        (allowed_reply(), "{".to_owned(), "malformed"),
    ] {
        let mut registry = prometheus_client::registry::Registry::default();
        let router = router(
            mock_access(reply),
            None,
            None,
            Metrics::register(&mut registry),
        );
        let request = Request::post("/validate").body(Body::from(body)).unwrap();
        router.oneshot(request).await.unwrap();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            format!("di_admission_reviews_total{{webhook=\"validate\",outcome=\"{outcome}\"}} 1"),
            "di_admission_review_duration_seconds_count{webhook=\"validate\"} 1".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} not in {text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn template_is_allowed_only_if_authorized() {
    let allowed_but_denied = json!({"allowed": true, "denied": true});
    let evaluation_error = json!({"allowed": false, "evaluationError": "x"});
    for (reply, expected) in [
        (allowed_reply(), "200"),
        (access_reply(&json!({"allowed": false})), "403"),
        (access_reply(&allowed_but_denied), "403"),
        (access_reply(&evaluation_error), "403"),
        (access_reply(&json!(null)), "403"),
        (Reply::Object(201, json!({})), "403"),
        (Reply::error(403, "no"), "503"),
        (Reply::Object(500, json!("broken")), "503"),
        (Reply::Hang, "503"),
    ] {
        let started_at = Instant::now();
        let router = router(mock_access(reply.clone()), None, None, Metrics::default());
        let (status, body) = post_with(router, "/validate", review_with_policy("None")).await;
        assert_eq!(status, StatusCode::OK);
        let expected_text = match expected {
            "200" => r#""allowed":true"#.to_owned(),
            code => format!(r#""code":{code}"#),
        };
        assert!(body.contains(&expected_text), "{reply:?}: {body}");
        assert_eq!(body.contains(r#""allowed":true"#), expected == "200");
        assert!(
            started_at.elapsed() < Duration::from_secs(6),
            "the API server waits 10 s"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_access_queries_are_limited() {
    let (running, max) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = max.clone();
    // `ApiServerMock` replies at once, so its requests never overlap.
    let service = service_fn(move |_: Request<kube::client::Body>| {
        let (running, max) = (running.clone(), max.clone());
        async move {
            max.fetch_max(running.fetch_add(1, Relaxed) + 1, Relaxed);
            sleep(Duration::from_millis(10)).await;
            running.fetch_sub(1, Relaxed);
            let body = json!({"metadata": {}, "spec": {}, "status": {"allowed": true}});
            let body = kube::client::Body::from(body.to_string().into_bytes());
            Ok::<_, Infallible>(axum::http::Response::new(body))
        }
    });
    let access = Access::new(Client::new(service, "default"), Duration::ZERO);
    let router = router(access, None, None, Metrics::default());
    let flood =
        (0..500).map(|_| post_with(router.clone(), "/validate", review_with_policy("None")));
    for (_, body) in join_all(flood).await {
        assert!(body.contains(r#""allowed":true"#), "{body}");
    }
    assert!(seen.load(Relaxed) <= 32, "{seen:?} at a time");
}

#[tokio::test(start_paused = true)]
async fn access_is_queried_again_after_cache_ttl() {
    let (mock, client) = ApiServerMock::new(|_| allowed_reply());
    let access = Access::new(client, Duration::from_secs(10));
    let router = router(access, None, None, Metrics::default());
    let bob = review_with_policy("None")
        .replace(r#""userInfo": {}"#, r#""userInfo": {"username": "bob"}"#);
    for (review, after, expected) in [
        (review_with_policy("None"), 0, 1),
        (review_with_policy("None"), 9, 1),
        (bob.clone(), 0, 2),
        (review_with_policy("None"), 2, 3),
        (bob, 0, 3),
    ] {
        tokio::time::advance(Duration::from_secs(after)).await;
        let (_, body) = post_with(router.clone(), "/validate", review).await;
        assert!(body.contains(r#""allowed":true"#), "{body}");
        assert_eq!(mock.requests().len(), expected);
    }
}

/// A request with these parts of its body, which then stalls.
fn stalling_request(parts: Vec<Bytes>) -> Request<Body> {
    let parts = stream::iter(parts)
        .map(Ok::<_, Infallible>)
        .chain(pending());
    Request::post("/validate")
        .header(header::CONTENT_LENGTH, MAX_BODY_BYTES)
        .body(Body::from_stream(parts))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn announced_but_unsent_body_reserves_no_memory() {
    let router = open_router();
    for _ in 0..100 {
        tokio::spawn(router.clone().oneshot(stalling_request(Vec::new())));
    }
    sleep(Duration::from_millis(1)).await;
    let started_at = Instant::now();
    let large = format!(
        "{}{}",
        " ".repeat(MAX_BODY_BYTES / 2),
        review_with_policy("None")
    );
    for body in [review_with_policy("None"), large] {
        let (_, body) = post_with(router.clone(), "/validate", body).await;
        assert!(body.contains(r#""allowed":true"#), "{body}");
    }
    assert!(started_at.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn body_without_free_memory_is_not_read() {
    let router = open_router();
    let most = Bytes::from(vec![b' '; MAX_BODY_BYTES - 1]);
    for _ in 0..8 {
        tokio::spawn(router.clone().oneshot(stalling_request(vec![most.clone()])));
    }
    sleep(Duration::from_secs(1)).await;
    let taken = Arc::new(AtomicUsize::new(0));
    let count = taken.clone();
    let parts = stream::repeat_with(move || {
        count.fetch_add(1, Relaxed);
        Ok::<_, Infallible>(Bytes::from_static(b" "))
    });
    let request = Request::post("/validate").body(Body::from_stream(parts.take(10)));
    let late = tokio::spawn(router.oneshot(request.unwrap()));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(taken.load(Relaxed), 0);
    // The stalled requests have timed out.
    let response = late.await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(taken.load(Relaxed), 10);
}

#[tokio::test(start_paused = true)]
async fn unsent_bodies_reserve_no_memory() {
    let router = open_router();
    // The memory would be enough for the frames of half of the requests.
    for _ in 0..3000 {
        let never = Body::from_stream(pending::<Result<Bytes, Infallible>>());
        let request = Request::post("/validate").body(never).unwrap();
        tokio::spawn(router.clone().oneshot(request));
    }
    sleep(Duration::from_millis(1)).await;
    let started_at = Instant::now();
    let (_, body) = post_with(router, "/validate", review_with_policy("None")).await;
    assert!(body.contains(r#""allowed":true"#), "{body}");
    assert!(started_at.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn stalled_bodies_release_memory_after_timeout() {
    let router = open_router();
    let most = Bytes::from(vec![b' '; MAX_BODY_BYTES - 1]);
    let stalled: Vec<_> = (0..20)
        .map(|_| tokio::spawn(router.clone().oneshot(stalling_request(vec![most.clone()]))))
        .collect();
    sleep(Duration::from_secs(1)).await;
    let large = format!(
        "{}{}",
        " ".repeat(MAX_BODY_BYTES / 2),
        review_with_policy("None")
    );
    let (_, body) = post_with(router, "/validate", large).await;
    assert!(body.contains(r#""allowed":true"#), "{body}");
    for stalled in stalled {
        let response = stalled.await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    }
}

#[tokio::test(start_paused = true)]
async fn partly_sent_bodies_do_not_deadlock() {
    let router = open_router();
    let large = format!(
        "{}{}",
        " ".repeat(MAX_BODY_BYTES / 2),
        review_with_policy("None")
    );
    let large = Bytes::from(large);
    let flood = (0..40).map(|_| {
        let parts: Vec<_> = large
            .chunks(64 << 10)
            .map(|part| large.slice_ref(part))
            .collect();
        let parts = stream::iter(parts).then(|part| async move {
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(part)
        });
        post_with(router.clone(), "/validate", Body::from_stream(parts))
    });
    for (_, body) in join_all(flood).await {
        assert!(body.contains(r#""allowed":true"#), "{body}");
    }
}

#[tokio::test]
async fn bodies_above_memory_limit_wait() {
    let large = format!(
        "{}{}",
        " ".repeat(MAX_BODY_BYTES / 2),
        review_with_policy("None")
    );
    let router = open_router();
    // More than three times the memory for bodies.
    let flood = (0..40).map(|_| post_with(router.clone(), "/validate", large.clone()));
    for (_, body) in join_all(flood).await {
        assert!(body.contains(r#""allowed":true"#), "{body}");
    }
}
