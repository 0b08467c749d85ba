use std::sync::Arc;

use axum::{body::Body, extract::Request, http::header};
use di_cache::{JobCache, PodCache};
use kube::{Client, Config, runtime::reflector};
use serde_json::{Value, json};

use crate::{Metrics, Settings, State, fixture::*, versions::VERSIONS};

#[tokio::test]
#[allow(clippy::too_many_lines)] // one table
async fn invalid_requests_are_rejected_in_both_versions() {
    let fixture = fixture(short_waits());
    let add_body = |learners: usize, collectors: usize| {
        json!({
            "namespace": "rl", "coordinator": "a-coordinator",
            "collectors": {"replicas": collectors}, "learners": {"replicas": learners},
        })
        .to_string()
    };
    let add_body_for = |coordinator: &str| {
        json!({"namespace": "rl", "coordinator": coordinator, "collectors": {"replicas": 1}})
            .to_string()
    };
    let large = format!(
        "{{\"x\":\"{}\"}}",
        "y".repeat(fixture.state.settings.max_body)
    );
    for version in VERSIONS {
        for (from, method, path, body, code, message) in [
            (
                COORDINATOR,
                "GET",
                "/replicas?job=a",
                "",
                400,
                "unknown query parameter job",
            ),
            (
                COORDINATOR,
                "POST",
                "/replicas",
                "{",
                400,
                "the body is not JSON",
            ),
            (
                COORDINATOR,
                "POST",
                "/replicas",
                &*large,
                413,
                "larger than 65536 bytes",
            ),
            (
                COORDINATOR,
                "PUT",
                "/replicas",
                "",
                501,
                "HTTP method not supported for this path",
            ),
            (
                COORDINATOR,
                "GET",
                "/replicas/failed",
                "",
                501,
                "HTTP method not supported for this path",
            ),
            (COORDINATOR, "GET", "/unknown", "", 404, "path not found"),
            (
                COORDINATOR,
                "POST",
                "/replicas",
                &*add_body(0, 1001),
                400,
                "between 0 and 1000",
            ),
            (
                COORDINATOR,
                "POST",
                "/replicas",
                r#"{"namespace":"rl","coordinator":"a-coordinator","learners":{"replicas":1,"gpus":5000}}"#,
                400,
                "at most 1024 GPUs",
            ),
            (
                COORDINATOR,
                "POST",
                "/replicas",
                &*add_body_for("b-coordinator"),
                403,
                "may only change its own job",
            ),
            (
                COORDINATOR,
                "DELETE",
                "/replicas",
                &*add_body_for("b-coordinator"),
                403,
                "may only change its own job",
            ),
            (
                COORDINATOR,
                "GET",
                "/replicas?namespace=kube-system",
                "",
                403,
                "its own namespace",
            ),
            (
                COORDINATOR,
                "GET",
                "/replicas?namespace=rl&aggregator=x",
                "",
                404,
                "no aggregator x",
            ),
            (
                COORDINATOR,
                "GET",
                "/replicas?namespace=rl&coordinator=x",
                "",
                404,
                "no coordinator x",
            ),
            (
                UNKNOWN,
                "GET",
                "/replicas?namespace=rl",
                "",
                401,
                "bearer token",
            ),
            (
                UNKNOWN,
                "POST",
                "/replicas",
                &*add_body(0, 1),
                401,
                "bearer token",
            ),
        ] {
            let path = format!("{version}{path}");
            let response = send_request(&fixture, from, method, &path, body).await;
            let actual = response.body["message"].as_str().unwrap();
            assert_eq!(response.code, code, "{method} {path}: {actual}");
            assert!(actual.contains(message), "{method} {path}: {actual}");
            assert_eq!(response.body["success"], false);
        }
    }
}

#[tokio::test]
async fn halted_jobs_reject_changes_with_409() {
    let mut suspended = job("suspended", &json!({}));
    suspended["spec"]["suspend"] = true.into();
    let mut deleting = job("deleting", &json!({}));
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let ended = job("ended", &json!({"phase": "Succeeded"}));
    let mut queued = job("queued", &json!({"phase": "Queued"}));
    queued["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "team-a"});
    let settings = Settings {
        allow_anonymous: true,
        ..short_waits()
    };
    let fixture = fixture_with(settings, [suspended, deleting, ended, queued], []);
    for (job, reason) in [
        ("suspended", "is suspended"),
        ("deleting", "is being deleted"),
        ("ended", "has ended"),
        ("queued", "waits in its queue"),
    ] {
        let body = |part: Value| {
            json!({"namespace": "rl", "coordinator": format!("{job}-coordinator"), "collectors": part}).to_string()
        };
        let one = body(json!({"replicas": 1}));
        let named = body(json!([format!("{job}-collector-x")]));
        for version in VERSIONS {
            for (method, path, body) in [
                ("POST", "/replicas", &one),
                ("DELETE", "/replicas", &one),
                ("POST", "/replicas/failed", &named),
            ] {
                let path = format!("{version}{path}");
                let response = send_request(&fixture, UNKNOWN, method, &path, body).await;
                assert_eq!(
                    (response.code, &response.body["message"]),
                    (409, &json!(format!("DIJob {job} {reason}"))),
                    "{method} {path}"
                );
            }
        }
    }
}

#[tokio::test]
async fn empty_changes_succeed_without_api_server() {
    let fixture = without_api_server(short_waits());
    let body = json!({
        "namespace": "rl", "coordinator": "a-coordinator",
        "collectors": ["unknown", "a-collector-old", "b-collector-x.other:1"], "learners": [],
    })
    .to_string();
    let response = send_request(
        &fixture,
        COLLECTOR,
        "POST",
        "/v1alpha1/replicas/failed",
        &body,
    )
    .await;
    let empty = json!({
        "namespace": "rl", "coordinator": "a-coordinator", "collectors": [], "learners": [],
    });
    assert_eq!((response.code, &response.body["data"]), (200, &empty));
    let body = json!({"namespace": "rl", "coordinator": "a-coordinator"}).to_string();
    for method in ["POST", "DELETE"] {
        let response =
            send_request(&fixture, COORDINATOR, method, "/v1alpha1/replicas", &body).await;
        assert_eq!((response.code, &response.body["data"]), (200, &empty));
    }
}

/// `curl -d` sends JSON with a form content type, and DI-engine sends no content type.
#[tokio::test]
async fn bodies_are_parsed_as_json_with_any_content_type() {
    let fixture = fixture(short_waits());
    let body = json!({"namespace": "rl", "coordinator": "a-coordinator"}).to_string();
    for content_type in [
        "application/x-www-form-urlencoded",
        "text/plain; charset=latin-1",
        "multipart/form-data",
        "rubbish",
    ] {
        for (method, path) in [
            ("POST", "/v1alpha1/replicas"),
            ("DELETE", "/v1alpha1/replicas"),
            ("POST", "/v1alpha1/replicas/failed"),
        ] {
            let request = Request::builder().method(method).uri(path);
            let request = request.header(header::CONTENT_TYPE, content_type);
            let request = request.body(Body::from(body.clone())).unwrap();
            let response = send(&fixture, COORDINATOR, request).await;
            assert_eq!(response.code, 200, "{content_type}: {}", response.body);
        }
    }
}

#[tokio::test]
async fn transient_errors_return_200_in_v1alpha1_503_in_v1alpha2() {
    let fixture = fixture(Settings {
        allow_anonymous: true,
        ..short_waits()
    });
    for (version, code, retry_after) in [("v1alpha1", 200, false), ("v1alpha2", 503, true)] {
        // The job is not in the cache, and the API server is unreachable.
        let path = format!("/{version}/replicas?namespace=rl&coordinator=fresh-coordinator");
        let response = send_request(&fixture, UNKNOWN, "GET", &path, "").await;
        assert_eq!((response.code, response.retry_after), (code, retry_after));
        assert_eq!(response.body["success"], false);
    }
}

#[tokio::test]
async fn f33_readyz_returns_503_until_caches_are_synced() {
    let (reader, writer) = reflector::store();
    let client = Client::try_from(Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
    let state = State::new(
        client,
        Arc::new(JobCache::new(reader)),
        Arc::new(PodCache::default()),
        short_waits(),
        Metrics::default(),
    );
    let fixture = Fixture {
        state,
        _writer: writer,
    };
    assert_eq!(
        send_request(&fixture, UNKNOWN, "GET", "/readyz", "")
            .await
            .code,
        503
    );
    assert_eq!(
        send_request(&fixture, UNKNOWN, "GET", "/healthz", "")
            .await
            .code,
        200
    );
    let path = "/v1alpha1/replicas?namespace=rl&coordinator=a-coordinator";
    let response = send_request(&fixture, COORDINATOR, "GET", path, "").await;
    assert_eq!(
        (response.code, &response.body["success"]),
        (200, &json!(false))
    );
}

#[tokio::test]
async fn unknown_body_fields_are_rejected_in_newer_version() {
    let fixture = fixture(short_waits());
    let body =
        json!({"namespace": "rl", "coordinator": "a-coordinator", "collector": {"replicas": 1}});
    let hint = "unknown field collector, did you mean collectors?";
    for (version, code, message) in [
        (
            "v1alpha1",
            200,
            format!("no replicas were requested; ignored: {hint}"),
        ),
        ("v1alpha2", 400, hint.to_owned()),
    ] {
        let path = format!("/{version}/replicas");
        for method in ["POST", "DELETE"] {
            let response =
                send_request(&fixture, COORDINATOR, method, &path, &body.to_string()).await;
            assert_eq!(response.code, code, "{method} {path}");
            assert_eq!(response.body["message"], message, "{method} {path}");
        }
    }
}
