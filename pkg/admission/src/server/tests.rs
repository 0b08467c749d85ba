use std::convert::Infallible;

use axum::{body::Body, http::Request};
use futures::stream::pending;
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::*;

async fn post_to(path: &str, body: impl Into<Body>) -> (StatusCode, String) {
    let request = Request::post(path).body(body.into()).unwrap();
    let response = router(Metrics::default()).oneshot(request).await.unwrap();
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
    let mut registry = prometheus_client::registry::Registry::default();
    let router = router(Metrics::register(&mut registry));
    for body in [review("None"), review("Never"), "{".to_owned()] {
        let request = Request::post("/validate").body(Body::from(body)).unwrap();
        router.clone().oneshot(request).await.unwrap();
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for outcome in ["allowed", "denied", "malformed"] {
        let line =
            format!("di_admission_reviews_total{{webhook=\"validate\",outcome=\"{outcome}\"}} 1");
        assert!(text.contains(&line), "{line} not in {text}");
    }
}
