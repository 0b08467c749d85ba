use std::time::Duration;

use di_api::Role;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{Settings, fixture::*, routes::VERSIONS};

#[tokio::test]
async fn f32_a_coordinator_sees_the_replicas_that_it_may_use() {
    let fixture = fixture(short_waits());
    for version in VERSIONS {
        let path = format!("{version}/replicas?Namespace=rl&COORDINATOR=a-coordinator");
        let answer = send_request(&fixture, COORDINATOR, "GET", &path, "{}").await;
        assert_eq!(answer.code, 200);
        assert_eq!(
            answer.body["data"],
            json!({
                "namespace": "rl", "coordinator": "a-coordinator",
                "collectors": ["a-collector-run.rl:22270", "a-collector-new.rl:4000"],
                "learners": ["a-learner-new.rl:22271"],
            })
        );
    }
}

#[tokio::test]
async fn f28_lists_hold_one_record_for_each_job_that_runs() {
    let fixture = fixture(short_waits());
    let empty = json!({
        "namespace": "rl", "coordinator": "b-coordinator", "collectors": [], "learners": [],
    });
    for path in ["/v1alpha1/replicas", "/v1alpha1/replicas?namespace=rl"] {
        let answer = send_request(&fixture, COORDINATOR, "GET", path, "").await;
        let all = answer.body["data"].as_array().unwrap();
        assert_eq!(all.len(), 2, "{path}");
        assert_eq!(all[0]["coordinator"], "a-coordinator");
        assert_eq!(all[1], empty);
    }
    let path = "/v1alpha1/replicas?namespace=rl&coordinator=over-coordinator";
    let answer = send_request(&fixture, COORDINATOR, "GET", path, "").await;
    assert_eq!(answer.body["data"]["collectors"], json!([]));
}

#[tokio::test]
async fn one_replica_is_found_by_its_name() {
    let fixture = fixture(short_waits());
    for (name, code, collectors) in [
        ("a-collector-run", 200, json!(["a-collector-run.rl:22270"])),
        ("a-collector-bad", 200, json!([])),
        ("a-collector-old", 404, Value::Null),
        ("nobody", 404, Value::Null),
    ] {
        let path = format!("/v1alpha1/replicas?namespace=rl&name={name}");
        let answer = send_request(&fixture, COORDINATOR, "GET", &path, "").await;
        assert_eq!(answer.code, code, "{name}");
        assert_eq!(answer.body["data"]["collectors"], collectors, "{name}");
    }
}

#[tokio::test]
async fn a_pod_that_has_just_got_its_address_is_waited_for() {
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
    // As a dual-stack socket shows it.
    let asked = send_request(&fixture, "::ffff:10.0.0.77", "GET", path, "");
    let (answer, ()) = tokio::join!(asked, later);
    assert_eq!(answer.code, 200);
}

#[tokio::test]
async fn while_the_address_of_a_pod_of_the_job_is_not_told_who_calls_may_be_it() {
    let mut late = pod(
        "b",
        Role::Coordinator,
        "b-coordinator",
        "b-uid",
        "10.0.0.77",
    );
    late.ips = None;
    let mut of_host = pod(
        "c",
        Role::Coordinator,
        "c-coordinator",
        "c-uid",
        "10.0.0.78",
    );
    of_host.ips = Some([].into());
    of_host.scheduled_at = Some(Timestamp::now());
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
        late.scheduled_at = placed;
        let fixture = fixture_with(short_waits(), jobs(), [late.clone(), of_host.clone()]);
        for (version, code) in ["v1alpha1", "v1alpha2"].into_iter().zip(codes) {
            let path = format!("/{version}/replicas");
            let answer = send_request(&fixture, UNKNOWN, "POST", &path, &body).await;
            assert_eq!(
                (answer.code, &answer.body["success"]),
                (code, &json!(false))
            );
            assert_eq!(answer.retry_after, code == 503);
            let list = format!("{path}?namespace=rl&coordinator=b-coordinator");
            assert_eq!(
                send_request(&fixture, UNKNOWN, "GET", &list, "").await.code,
                code
            );
            let answer = send_request(&fixture, UNKNOWN, "POST", &path, &other).await;
            assert_eq!(answer.code, 401, "another job's pods are all known");
        }
    }
}
