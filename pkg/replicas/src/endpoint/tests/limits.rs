use di_api::Role;
use di_cache::CallError;
use serde_json::json;

use crate::{Settings, error::Error, fixture::*};

#[tokio::test]
async fn changes_over_the_job_limit_are_rejected_as_retryable() {
    let fixture = fixture(Settings {
        max_changes_per_job: 2,
        ..short_waits()
    });
    let key = ("rl".to_owned(), "a".to_owned());
    let _lock = fixture.state.lock_job(&key).await.unwrap();
    let waiting = fixture.state.lock_job(&key);
    tokio::pin!(waiting);
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    let body =
        json!({"namespace": "rl", "coordinator": "a-coordinator", "collectors": {"replicas": 1}});
    for (version, code, retry_after) in [("v1alpha1", 200, false), ("v1alpha2", 429, true)] {
        for method in ["POST", "DELETE"] {
            let path = format!("/{version}/replicas");
            let response =
                send_request(&fixture, COORDINATOR, method, &path, &body.to_string()).await;
            assert_eq!((response.code, response.retry_after), (code, retry_after));
            assert_eq!(response.body["success"], false);
        }
    }
    let list = "/v1alpha2/replicas?namespace=rl&coordinator=a-coordinator";
    assert_eq!(
        send_request(&fixture, COORDINATOR, "GET", list, "")
            .await
            .code,
        200
    );
    let other = json!({"namespace": "rl", "coordinator": "b-coordinator"}).to_string();
    let other = send_request(&fixture, OTHER_JOB, "DELETE", "/v1alpha2/replicas", &other).await;
    assert_eq!(other.code, 200, "{:?}", other.body);
}

#[tokio::test]
async fn replicas_over_the_job_limit_are_rejected() {
    // Job a has five plan entries, and one of them is being removed.
    let fixture = fixture(Settings {
        max_replicas_per_job: 5,
        ..short_waits()
    });
    let body = json!({
        "namespace": "rl", "coordinator": "a-coordinator",
        "collectors": {"replicas": 1}, "learners": {"replicas": 1, "gpus": 1},
    });
    for version in ["v1alpha1", "v1alpha2"] {
        let path = format!("/{version}/replicas");
        let response = send_request(&fixture, COORDINATOR, "POST", &path, &body.to_string()).await;
        assert_eq!(
            (response.code, response.body["message"].as_str().unwrap()),
            (400, "DIJob a has 4 replicas and may have at most 5")
        );
    }
}

/// DI-engine exits on a rejection, and the cache may be outdated. Without a live read, the endpoint
/// therefore returns a retryable error. See docs/decisions/0007.
#[tokio::test]
async fn replica_limit_without_live_read_is_retryable() {
    let fixture = without_api_server(Settings {
        max_replicas_per_job: 4,
        ..short_waits()
    });
    let body =
        json!({"namespace": "rl", "coordinator": "a-coordinator", "collectors": {"replicas": 1}});
    for (version, code) in [("v1alpha1", 200), ("v1alpha2", 503)] {
        let path = format!("/{version}/replicas");
        let response = send_request(&fixture, COORDINATOR, "POST", &path, &body.to_string()).await;
        assert_eq!(
            (response.code, &response.body["success"]),
            (code, &json!(false))
        );
    }
}

#[tokio::test]
async fn done_replicas_do_not_count_toward_the_job_limit() {
    for (is_done, code) in [(false, 400), (true, 503)] {
        let plan = json!([
            {"name": "a-collector-run", "type": "Collector", "origin": "Requested", "index": 0},
            {"name": "a-collector-end", "type": "Collector", "origin": "Requested", "index": 1, "done": is_done},
        ]);
        let settings = Settings {
            max_replicas_per_job: 2,
            ..short_waits()
        };
        let job = job("a", &json!({"phase": "Running", "plan": plan}));
        let coordinator = pod(
            "a",
            Role::Coordinator,
            "a-coordinator",
            "a-uid",
            COORDINATOR,
        );
        let fixture = fixture_with(settings, [job], [coordinator]);
        let body = json!({"namespace": "rl", "coordinator": "a-coordinator", "collectors": {"replicas": 1}});
        let path = "/v1alpha2/replicas";
        let response = send_request(&fixture, COORDINATOR, "POST", path, &body.to_string()).await;
        // 503: the request passes the limit, but the API server of the fixture rejects writes.
        assert_eq!(response.code, code, "{:?}", response.body);
    }
}

#[test]
fn f30_api_server_errors_map_to_status_codes() {
    for (api_code, code) in [
        (400, 400),
        (401, 503),
        (403, 503),
        (404, 404),
        (409, 503),
        (413, 400),
        (422, 400),
        (429, 503),
        (500, 503),
        (504, 503),
    ] {
        let reason = if api_code == 404 {
            "NotFound"
        } else {
            "Reason"
        };
        let status = kube::core::Status::failure("detail", reason).with_code(api_code);
        let error = Error::from(CallError::Api {
            operation: "write".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        });
        assert_eq!(error.status_code(), code, "{api_code}");
        assert!(error.to_string().contains("detail"), "{error}");
    }
    let unreadable = serde_json::from_str::<u8>("text").unwrap_err();
    let error = Error::from(CallError::Api {
        operation: "write".to_owned(),
        source: Box::new(kube::Error::SerdeError(unreadable)),
    });
    assert_eq!(error.status_code(), 500, "a retry returns the same");
    let message = error.to_string();
    assert!(
        message.contains("response of the API server cannot be decoded"),
        "{message}"
    );
}
