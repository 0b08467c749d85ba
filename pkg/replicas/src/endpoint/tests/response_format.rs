use std::time::Duration;

use axum::{Router, body::Body, extract::Request, http::header, routing::get};
use http_body_util::BodyExt;
use serde_json::Value;

use crate::{Endpoint, endpoint::PATHS, fixture::*, versions::VERSIONS};

#[tokio::test]
async fn metrics_count_requests_by_route_and_code() {
    let fixture = fixture(short_waits());
    send_request(
        &fixture,
        COORDINATOR,
        "GET",
        "/v1alpha1/replicas?namespace=rl",
        "",
    )
    .await;
    send_request(
        &fixture,
        COORDINATOR,
        "GET",
        "/some/name/of/the/requester",
        "",
    )
    .await;
    let request = Request::builder()
        .uri("/metrics")
        .body(Body::empty())
        .unwrap();
    let response = Endpoint::new(fixture.state.clone())
        .handle_request(request)
        .await;
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap();
    for line in [
        "di_replicas_requests_total{route=\"/v1alpha1/replicas\",method=\"GET\",code=\"200\"} 1",
        "di_replicas_requests_total{route=\"other\",method=\"GET\",code=\"404\"} 1",
        "di_replicas_status_conflicts_total 0",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[tokio::test]
async fn f29_responses_are_json_with_one_envelope() {
    let fixture = fixture(short_waits());
    let list = "/v1alpha1/replicas?namespace=rl";
    // `send_request` checks the content type and the envelope of each response.
    for (method, path, code) in [
        ("GET", list, 200),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("OPTIONS", list, 501),
        ("TRACE", "/v1alpha2/replicas", 501),
        ("PATCH", "/v1alpha1/replicas/failed", 501),
        ("BREW", "/healthz", 501),
        ("POST", "/metrics", 501),
        ("GET", "/", 404),
        ("GET", "/v1alpha1", 404),
        ("GET", "/v1alpha1/replicas/", 404),
        ("GET", "/v1alpha1/%72eplicas", 404),
        ("GET", "/v1alpha3/replicas", 404),
        ("GET", "//v1alpha1/replicas", 404),
    ] {
        let response = send_request(&fixture, COORDINATOR, method, path, "").await;
        assert_eq!(response.code, code, "{method} {path}");
    }
}

#[tokio::test]
async fn query_keys_are_decoded_and_rejected_when_repeated() {
    let fixture = fixture(short_waits());
    for (query, code) in [
        ("n%61mespace=rl&Coordinator=a-coordinator", 200),
        ("namespace=rl&coordinator=a%2Dcoordinator", 200),
        ("namespace=rl&NAMESPACE=rl", 400),
        ("namespace=rl&extra=", 400),
        ("namespace=%ff", 400),
        ("namespace=r%20l", 400),
        ("namespace=r+l", 400),
        ("namespace", 200),
        ("&&", 200),
    ] {
        let path = format!("/v1alpha2/replicas?{query}");
        let response = send_request(&fixture, COORDINATOR, "GET", &path, "").await;
        assert_eq!(response.code, code, "{query}");
    }
}

#[tokio::test]
async fn head_request_returns_get_headers_without_body() {
    let fixture = fixture(short_waits());
    let request = Request::head("/healthz").body(Body::empty()).unwrap();
    let response = Endpoint::new(fixture.state.clone())
        .handle_request(request)
        .await;
    assert_eq!(response.status(), 200);
    assert_ne!(response.headers()[header::CONTENT_LENGTH], "0");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.is_empty());
}

#[tokio::test]
async fn openapi_document_lists_all_paths() {
    let fixture = fixture(short_waits());
    let request = Request::get("/openapi.json").body(Body::empty()).unwrap();
    let response = Endpoint::new(fixture.state.clone())
        .handle_request(request)
        .await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let document: Value = serde_json::from_slice(&body).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    let paths: Vec<_> = document["paths"].as_object().unwrap().keys().collect();
    assert_eq!(paths, PATHS, "the same paths as in the metrics");
    for version in VERSIONS {
        assert!(document["paths"][format!("{version}/replicas/failed")]["post"].is_object());
    }
}

#[tokio::test]
async fn panicking_or_hanging_handlers_return_error_envelopes() {
    let fixture = fixture(crate::Settings {
        request_timeout: Duration::from_millis(50),
        ..short_waits()
    });
    let routes = Router::new()
        .route(
            "/v1alpha1/panics",
            get(async || -> &'static str { panic!("test") }),
        )
        .route("/v1alpha1/hangs", get(std::future::pending::<&'static str>))
        .route("/v1alpha2/hangs", get(std::future::pending::<&'static str>));
    let endpoint = Endpoint::with_routes(routes, fixture.state.clone());
    for (path, code) in [
        ("/v1alpha1/panics", 500),
        ("/v1alpha1/hangs", 200),
        ("/v1alpha2/hangs", 503),
    ] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = endpoint.handle_request(request).await;
        assert_eq!(response.status(), code, "{path}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["success"], false, "{body}");
    }
}
