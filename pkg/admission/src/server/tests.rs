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

/// What an API server of a test answers to a `SubjectAccessReview`; nothing is no answer at all.
fn access(answer: Option<(u16, serde_json::Value)>) -> Access {
    let service = service_fn(move |_: Request<kube::client::Body>| {
        let answer = answer.clone();
        async move {
            let Some((code, body)) = answer else {
                return std::future::pending().await;
            };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            let response = axum::http::Response::builder().status(code).body(body);
            Ok::<_, Infallible>(response.unwrap())
        }
    });
    Access::new(Client::new(service, "default"), Duration::ZERO)
}

fn reviewed(status: &serde_json::Value) -> serde_json::Value {
    json!({"metadata": {}, "spec": {}, "status": status})
}

/// Where everybody may do everything.
pub(super) fn open() -> Router {
    let granted = reviewed(&json!({"allowed": true}));
    router(access(Some((201, granted))), Metrics::default())
}

async fn post_to(path: &str, body: impl Into<Body>) -> (StatusCode, String) {
    post_by(open(), path, body).await
}

async fn post_by(router: Router, path: &str, body: impl Into<Body>) -> (StatusCode, String) {
    let request = Request::post(path).body(body.into()).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

pub(super) fn review(policy: &str) -> String {
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
async fn reviews_are_answered_at_their_paths() {
    for (path, policy, expected) in [
        ("/validate", "None", r#""allowed":true"#),
        ("/validate", "Never", r#""allowed":false"#),
        ("/mutate", "ALL", r#""patch":""#),
    ] {
        let (status, body) = post_to(path, review(policy)).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert!(body.contains(expected), "{body}");
    }
}

#[tokio::test]
async fn other_requests_are_refused() {
    let large = "x".repeat(MAX_BODY + 1);
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
async fn a_body_that_never_comes_is_given_up() {
    let never = Body::from_stream(pending::<Result<Bytes, Infallible>>());
    let (status, _) = post_to("/validate", never).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn outcomes_are_counted() {
    let granted = Some((201, reviewed(&json!({"allowed": true}))));
    for (access_, body, outcome) in [
        (granted.clone(), review("None"), "allowed"),
        (granted.clone(), review("Never"), "denied"),
        (Some((500, json!("broken"))), review("None"), "undecided"),
        (granted, "{".to_owned(), "malformed"),
    ] {
        let mut registry = prometheus_client::registry::Registry::default();
        let router = router(access(access_), Metrics::register(&mut registry));
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
async fn only_a_clear_yes_lets_a_template_in() {
    let cases = [
        (Some((201, reviewed(&json!({"allowed": true})))), "200"),
        (Some((201, reviewed(&json!({"allowed": false})))), "403"),
        (
            Some((201, reviewed(&json!({"allowed": true, "denied": true})))),
            "403",
        ),
        (
            Some((
                201,
                reviewed(&json!({"allowed": false, "evaluationError": "x"})),
            )),
            "403",
        ),
        (Some((201, reviewed(&json!(null)))), "403"),
        (Some((201, json!({}))), "403"),
        (
            Some((403, json!({"kind": "Status", "code": 403, "message": "no"}))),
            "503",
        ),
        (Some((500, json!("broken"))), "503"),
        (None, "503"),
    ];
    for (answer, expected) in cases {
        let began = Instant::now();
        let router = router(access(answer.clone()), Metrics::default());
        let (status, body) = post_by(router, "/validate", review("None")).await;
        assert_eq!(status, StatusCode::OK);
        let wanted = match expected {
            "200" => r#""allowed":true"#.to_owned(),
            code => format!(r#""code":{code}"#),
        };
        assert!(body.contains(&wanted), "{answer:?}: {body}");
        assert_eq!(body.contains(r#""allowed":true"#), expected == "200");
        assert!(
            began.elapsed() < Duration::from_secs(6),
            "the API server waits 10 s"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_jobs_is_no_flood_of_questions() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let service = service_fn(move |_: Request<kube::client::Body>| {
        let (now, most) = (now.clone(), most.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
            sleep(Duration::from_millis(10)).await;
            now.fetch_sub(1, Relaxed);
            let body = reviewed(&json!({"allowed": true})).to_string().into_bytes();
            Ok::<_, Infallible>(axum::http::Response::new(kube::client::Body::from(body)))
        }
    });
    let access = Access::new(Client::new(service, "default"), Duration::ZERO);
    let router = router(access, Metrics::default());
    let flood = (0..500).map(|_| post_by(router.clone(), "/validate", review("None")));
    for (_, body) in join_all(flood).await {
        assert!(body.contains(r#""allowed":true"#), "{body}");
    }
    assert!(seen.load(Relaxed) <= 32, "{seen:?} at a time");
}

#[tokio::test(start_paused = true)]
async fn a_right_is_asked_for_again_once_it_is_not_believed_any_more() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let service = service_fn(move |_: Request<kube::client::Body>| {
        count.fetch_add(1, Relaxed);
        let body = reviewed(&json!({"allowed": true})).to_string().into_bytes();
        let answer = axum::http::Response::new(kube::client::Body::from(body));
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let access = Access::new(Client::new(service, "default"), Duration::from_secs(10));
    let router = router(access, Metrics::default());
    let bob = review("None").replace(r#""userInfo": {}"#, r#""userInfo": {"username": "bob"}"#);
    for (review, after, expected) in [
        (review("None"), 0, 1),
        (review("None"), 9, 1),
        (bob.clone(), 0, 2),
        (review("None"), 2, 3),
        (bob, 0, 3),
    ] {
        tokio::time::advance(Duration::from_secs(after)).await;
        let (_, body) = post_by(router.clone(), "/validate", review).await;
        assert!(body.contains(r#""allowed":true"#), "{body}");
        assert_eq!(asked.load(Relaxed), expected);
    }
}

/// A body of this length, of which these parts come, and then no more.
fn stalling(parts: Vec<Bytes>) -> Request<Body> {
    let parts = stream::iter(parts)
        .map(Ok::<_, Infallible>)
        .chain(pending());
    Request::post("/validate")
        .header(header::CONTENT_LENGTH, MAX_BODY)
        .body(Body::from_stream(parts))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn who_announces_much_and_sends_nothing_keeps_nobody_waiting() {
    let router = open();
    for _ in 0..100 {
        tokio::spawn(router.clone().oneshot(stalling(Vec::new())));
    }
    sleep(Duration::from_millis(1)).await;
    let began = Instant::now();
    let large = format!("{}{}", " ".repeat(MAX_BODY / 2), review("None"));
    for honest in [review("None"), large] {
        let (_, body) = post_by(router.clone(), "/validate", honest).await;
        assert!(body.contains(r#""allowed":true"#), "{body}");
    }
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn what_finds_no_room_is_not_taken() {
    let router = open();
    let most = Bytes::from(vec![b' '; MAX_BODY - 1]);
    for _ in 0..8 {
        tokio::spawn(router.clone().oneshot(stalling(vec![most.clone()])));
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
    // The others have given way by then.
    let answer = late.await.unwrap().unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert_eq!(taken.load(Relaxed), 10);
}

#[tokio::test(start_paused = true)]
async fn bodies_of_which_nothing_comes_hold_no_room() {
    let router = open();
    // There would be room for the next frames of half as many.
    for _ in 0..3000 {
        let never = Body::from_stream(pending::<Result<Bytes, Infallible>>());
        let request = Request::post("/validate").body(never).unwrap();
        tokio::spawn(router.clone().oneshot(request));
    }
    sleep(Duration::from_millis(1)).await;
    let began = Instant::now();
    let (_, body) = post_by(router, "/validate", review("None")).await;
    assert!(body.contains(r#""allowed":true"#), "{body}");
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn bodies_that_stall_half_way_give_way_in_time() {
    let router = open();
    let most = Bytes::from(vec![b' '; MAX_BODY - 1]);
    let stalled: Vec<_> = (0..20)
        .map(|_| tokio::spawn(router.clone().oneshot(stalling(vec![most.clone()]))))
        .collect();
    sleep(Duration::from_secs(1)).await;
    let large = format!("{}{}", " ".repeat(MAX_BODY / 2), review("None"));
    let (_, body) = post_by(router, "/validate", large).await;
    assert!(body.contains(r#""allowed":true"#), "{body}");
    for stalled in stalled {
        let answer = stalled.await.unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_that_come_in_parts_do_not_wait_for_each_other_for_ever() {
    let router = open();
    let large = format!("{}{}", " ".repeat(MAX_BODY / 2), review("None"));
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
        post_by(router.clone(), "/validate", Body::from_stream(parts))
    });
    for (_, body) in join_all(flood).await {
        assert!(body.contains(r#""allowed":true"#), "{body}");
    }
}

#[tokio::test]
async fn bodies_beyond_the_memory_set_aside_for_them_wait() {
    let large = format!("{}{}", " ".repeat(MAX_BODY / 2), review("None"));
    let router = open();
    // More than three times what they may take together.
    let flood = (0..40).map(|_| post_by(router.clone(), "/validate", large.clone()));
    for (_, body) in join_all(flood).await {
        assert!(body.contains(r#""allowed":true"#), "{body}");
    }
}
