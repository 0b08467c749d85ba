use std::time::Duration;

use di_api::Role;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{Settings, fixture::*, versions::VERSIONS};

#[tokio::test]
async fn f32_coordinator_query_lists_usable_replicas() {
    let fixture = fixture(short_waits());
    for version in VERSIONS {
        let path = format!("{version}/replicas?Namespace=rl&COORDINATOR=a-coordinator");
        let response = send_request(&fixture, COORDINATOR, "GET", &path, "{}").await;
        assert_eq!(response.code, 200);
        assert_eq!(
            response.body["data"],
            json!({
                "namespace": "rl", "coordinator": "a-coordinator",
                "collectors": ["a-collector-run.rl:22270", "a-collector-new.rl:4000"],
                "learners": ["a-learner-new.rl:22271"],
            })
        );
    }
}

#[tokio::test]
async fn f28_lists_have_one_record_per_running_job() {
    let fixture = fixture(short_waits());
    let empty = json!({
        "namespace": "rl", "coordinator": "b-coordinator", "collectors": [], "learners": [],
    });
    for path in ["/v1alpha1/replicas", "/v1alpha1/replicas?namespace=rl"] {
        let response = send_request(&fixture, COORDINATOR, "GET", path, "").await;
        let all = response.body["data"].as_array().unwrap();
        assert_eq!(all.len(), 2, "{path}");
        assert_eq!(all[0]["coordinator"], "a-coordinator");
        assert_eq!(all[1], empty);
    }
    let path = "/v1alpha1/replicas?namespace=rl&coordinator=over-coordinator";
    let response = send_request(&fixture, COORDINATOR, "GET", path, "").await;
    assert_eq!(response.body["data"]["collectors"], json!([]));
}

#[tokio::test]
async fn replica_query_by_name_returns_one_replica() {
    let fixture = fixture(short_waits());
    for (name, code, collectors) in [
        ("a-collector-run", 200, json!(["a-collector-run.rl:22270"])),
        ("a-collector-bad", 200, json!([])),
        ("a-collector-old", 404, Value::Null),
        ("unknown", 404, Value::Null),
    ] {
        let path = format!("/v1alpha1/replicas?namespace=rl&name={name}");
        let response = send_request(&fixture, COORDINATOR, "GET", &path, "").await;
        assert_eq!(response.code, code, "{name}");
        assert_eq!(response.body["data"]["collectors"], collectors, "{name}");
    }
}

#[tokio::test]
async fn request_from_new_pod_waits_for_its_address() {
    let fixture = fixture(Settings {
        kubelet_wait: Duration::from_secs(20),
        ..short_waits()
    });
    let later = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let new = pod("b", Role::Collector, "b-collector-x", "b-uid", "10.0.0.77");
        fixture.state.pods.record_created(new);
    };
    let path = "/v1alpha1/replicas?namespace=rl&coordinator=b-coordinator";
    // A dual-stack socket reports IPv4 peers as mapped IPv6 addresses.
    let request = send_request(&fixture, "::ffff:10.0.0.77", "GET", path, "");
    let (response, ()) = tokio::join!(request, later);
    assert_eq!(response.code, 200);
}

#[tokio::test]
async fn unknown_source_is_retryable_while_a_job_pod_has_no_ip() {
    let mut unaddressed = pod(
        "b",
        Role::Coordinator,
        "b-coordinator",
        "b-uid",
        "10.0.0.77",
    );
    unaddressed.ips = None;
    let mut host_network = pod(
        "c",
        Role::Coordinator,
        "c-coordinator",
        "c-uid",
        "10.0.0.78",
    );
    host_network.ips = Some([].into());
    host_network.scheduled_at = Some(Timestamp::now());
    let jobs = || [job("b", &json!({})), job("c", &json!({}))];
    let body = json!({"namespace": "rl", "coordinator": "b-coordinator"}).to_string();
    let other = json!({"namespace": "rl", "coordinator": "c-coordinator"}).to_string();
    let now = Timestamp::now();
    let long_ago = now - jiff::SignedDuration::from_mins(2);
    for (placed, codes) in [
        (None, [401, 401]),
        (Some(long_ago), [401, 401]),
        (Some(now), [200, 503]),
    ] {
        unaddressed.scheduled_at = placed;
        let fixture = fixture_with(
            short_waits(),
            jobs(),
            [unaddressed.clone(), host_network.clone()],
        );
        for (version, code) in ["v1alpha1", "v1alpha2"].into_iter().zip(codes) {
            let path = format!("/{version}/replicas");
            let response = send_request(&fixture, UNKNOWN, "POST", &path, &body).await;
            assert_eq!(
                (response.code, &response.body["success"]),
                (code, &json!(false))
            );
            assert_eq!(response.retry_after, code == 503);
            let list = format!("{path}?namespace=rl&coordinator=b-coordinator");
            assert_eq!(
                send_request(&fixture, UNKNOWN, "GET", &list, "").await.code,
                code
            );
            let response = send_request(&fixture, UNKNOWN, "POST", &path, &other).await;
            assert_eq!(
                response.code, 401,
                "the addresses of all pods of job c are known"
            );
        }
    }
}
