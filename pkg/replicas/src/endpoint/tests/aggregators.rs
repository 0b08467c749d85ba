//! Requests about learner groups, from coordinators and from aggregators.

use di_api::{Role, names};
use di_plan::PodView;
use serde_json::{Value, json};

use crate::fixture::{COORDINATOR, Fixture, fixture_with, job, pod, send_request, short_waits};

const AGGREGATOR_IP: &str = "10.0.1.1";
const AGGREGATOR_NAME: &str = "u-aggregator-abcde";
const FIRST_LEARNER: &str = "u-ddp-learner-aaaaa";
const SECOND_LEARNER: &str = "u-ddp-learner-bbbbb";

fn ddp_entry(name: &str, gpus: i32, rank: i32) -> Value {
    json!({
        "name": name, "type": "DDPLearner", "origin": "Requested", "index": rank, "resources": {"gpus": gpus.to_string()},
        "ddp": {"aggregator": AGGREGATOR_NAME, "worldSize": 3, "startRank": rank},
    })
}

fn plan_entries() -> Value {
    json!([
        {"name": "u-learner-aaaaa", "type": "Learner", "origin": "Requested", "index": 0, "resources": {"gpus": "1"}},
        {"name": AGGREGATOR_NAME, "type": "Aggregator", "origin": "Requested", "index": 0, "port": 5000, "resources": {"gpus": "3"}},
        ddp_entry(FIRST_LEARNER, 2, 0),
        ddp_entry(SECOND_LEARNER, 1, 2),
        {"name": "u-aggregator-unplaced", "type": "Aggregator", "origin": "Declared", "index": 1, "resources": {"gpus": "2"}},
        {"name": "u-aggregator-removing", "type": "Aggregator", "origin": "Declared", "index": 2, "port": 5000, "state": "Removing"},
    ])
}

fn ddp_pod(name: &str, port: i32) -> PodView {
    let mut pod = pod("u", Role::DdpLearner, name, "u-uid", "10.0.1.9");
    pod.port = port;
    pod
}

fn group_fixture(change: impl FnOnce(&mut [PodView])) -> Fixture {
    let mut aggregator = pod(
        "u",
        Role::Aggregator,
        AGGREGATOR_NAME,
        "u-uid",
        AGGREGATOR_IP,
    );
    aggregator.port = 5000;
    let mut pods = vec![
        pod(
            "u",
            Role::Coordinator,
            "u-coordinator",
            "u-uid",
            COORDINATOR,
        ),
        aggregator,
        ddp_pod(FIRST_LEARNER, 22271),
        ddp_pod(SECOND_LEARNER, 22273),
    ];
    change(&mut pods);
    let status = json!({"phase": "Running", "plan": plan_entries()});
    fixture_with(
        short_waits(),
        [job("u", &status), job("v", &json!({}))],
        pods,
    )
}

async fn list_replicas(fixture: &Fixture, query: &str) -> (u16, Value) {
    let path = format!("/v1alpha1/replicas?namespace=rl&{query}");
    let response = send_request(fixture, AGGREGATOR_IP, "GET", &path, "{}").await;
    (response.code, response.body["data"].clone())
}

fn list_record(coordinator: &str, learners: &[&str]) -> Value {
    json!({"namespace": "rl", "coordinator": coordinator, "collectors": [], "learners": learners})
}

#[tokio::test]
async fn aggregator_query_lists_all_processes_of_ddp_learners() {
    let fixture = group_fixture(|_| {});
    let all = [
        "u-ddp-learner-aaaaa.rl:22271",
        "u-ddp-learner-aaaaa.rl:22272",
        "u-ddp-learner-bbbbb.rl:22273",
    ];
    let response = list_replicas(&fixture, &format!("aggregator={AGGREGATOR_NAME}")).await;
    assert_eq!(response, (200, list_record(AGGREGATOR_NAME, &all)));
    let removing = list_replicas(&fixture, "aggregator=u-aggregator-removing").await;
    assert_eq!(removing, (200, list_record("u-aggregator-removing", &[])));
}

#[tokio::test]
async fn coordinator_query_lists_aggregators_without_ddp_learners() {
    let usable_urls = ["u-learner-aaaaa.rl:22271", "u-aggregator-abcde.rl:5000"];
    let response = list_replicas(&group_fixture(|_| {}), "coordinator=u-coordinator").await;
    assert_eq!(response, (200, list_record("u-coordinator", &usable_urls)));
    // An unschedulable or terminating pod makes its whole learner group unusable.
    let mark_unschedulable: fn(&mut PodView) = |pod| pod.scheduled = Err("no room".into());
    let mark_deleting: fn(&mut PodView) = |pod| pod.deleting = true;
    for (index, change) in [
        (2, mark_unschedulable),
        (3, mark_unschedulable),
        (3, mark_deleting),
        (1, mark_unschedulable),
    ] {
        let fixture = group_fixture(|pods| change(&mut pods[index]));
        let response = list_replicas(&fixture, "coordinator=u-coordinator").await;
        assert_eq!(
            response,
            (200, list_record("u-coordinator", &usable_urls[..1])),
            "{index}"
        );
    }
}

#[tokio::test]
async fn f27_query_key_combinations_return_matching_record() {
    let fixture = group_fixture(|_| {});
    let second = list_record(AGGREGATOR_NAME, &["u-ddp-learner-bbbbb.rl:22273"]);
    let group = list_record("u-coordinator", &["u-aggregator-abcde.rl:5000"]);
    let all = list_replicas(&fixture, &format!("aggregator={AGGREGATOR_NAME}"))
        .await
        .1;
    let null = Value::Null;
    for (query, code, data) in [
        (format!("name={SECOND_LEARNER}"), 200, &second),
        (
            format!("name={SECOND_LEARNER}&coordinator=u-coordinator"),
            200,
            &second,
        ),
        (
            format!("name={SECOND_LEARNER}&aggregator={AGGREGATOR_NAME}"),
            200,
            &second,
        ),
        (
            format!("name={SECOND_LEARNER}&aggregator={AGGREGATOR_NAME}&coordinator=u-coordinator"),
            200,
            &second,
        ),
        (
            format!("aggregator={AGGREGATOR_NAME}&coordinator=u-coordinator"),
            200,
            &all,
        ),
        (format!("name={AGGREGATOR_NAME}"), 200, &group),
        (
            format!("name={AGGREGATOR_NAME}&coordinator=u-coordinator"),
            200,
            &group,
        ),
        (
            format!("name={AGGREGATOR_NAME}&aggregator={AGGREGATOR_NAME}"),
            404,
            &null,
        ),
        (
            format!("name={SECOND_LEARNER}&coordinator=v-coordinator"),
            404,
            &null,
        ),
        (
            format!("name={SECOND_LEARNER}&aggregator=u-aggregator-unplaced"),
            404,
            &null,
        ),
        (
            format!("aggregator={AGGREGATOR_NAME}&coordinator=v-coordinator"),
            404,
            &null,
        ),
        (format!("aggregator={FIRST_LEARNER}"), 404, &null),
        ("aggregator=u-coordinator".to_owned(), 404, &null),
    ] {
        let (status, record) = list_replicas(&fixture, &query).await;
        assert_eq!((status, &record), (code, data), "{query}");
    }
}

#[tokio::test]
async fn f27_sixteen_sets_of_query_keys_return_expected_status() {
    let fixture = group_fixture(|_| {});
    let job_record = list_record(
        "u-coordinator",
        &["u-learner-aaaaa.rl:22271", "u-aggregator-abcde.rl:5000"],
    );
    let jobs = json!([job_record, list_record("v-coordinator", &[])]);
    let group_record = list_record(
        AGGREGATOR_NAME,
        &[
            "u-ddp-learner-aaaaa.rl:22271",
            "u-ddp-learner-aaaaa.rl:22272",
            "u-ddp-learner-bbbbb.rl:22273",
        ],
    );
    let second = list_record(AGGREGATOR_NAME, &["u-ddp-learner-bbbbb.rl:22273"]);
    let null = Value::Null;
    for set in 0..16 {
        let [namespace, coordinator, aggregator, name] = [1, 2, 4, 8].map(|key| set & key > 0);
        let keys = [
            (namespace, "namespace=rl".to_owned()),
            (coordinator, "coordinator=u-coordinator".to_owned()),
            (aggregator, format!("aggregator={AGGREGATOR_NAME}")),
            (name, format!("name={SECOND_LEARNER}")),
        ];
        let used = keys.into_iter().filter(|(is_used, _)| *is_used);
        let used: Vec<_> = used.map(|(_, key)| key).collect();
        let path = format!("/v1alpha1/replicas?{}", used.join("&"));
        let expected = match (namespace, coordinator, aggregator, name) {
            (_, false, false, false) => (200, &jobs),
            (false, ..) => (400, &null),
            (true, _, _, true) => (200, &second),
            (true, _, true, false) => (200, &group_record),
            (true, true, false, false) => (200, &job_record),
        };
        let response = send_request(&fixture, AGGREGATOR_IP, "GET", &path, "").await;
        assert_eq!((response.code, &response.body["data"]), expected, "{path}");
    }
}

#[tokio::test]
async fn aggregator_requests_are_authorized_for_its_job_only() {
    let fixture = group_fixture(|_| {});
    let body = json!({"namespace": "rl", "coordinator": AGGREGATOR_NAME, "learners": ["unknown", "unknown.rl:1"]});
    let path = "/v1alpha1/replicas/failed";
    let response = send_request(&fixture, AGGREGATOR_IP, "POST", path, &body.to_string()).await;
    assert_eq!(
        (response.code, &response.body["data"]),
        (200, &list_record(AGGREGATOR_NAME, &[]))
    );
    let own = json!({"namespace": "rl", "coordinator": AGGREGATOR_NAME}).to_string();
    for method in ["POST", "DELETE"] {
        for from in [AGGREGATOR_IP, COORDINATOR] {
            let response = send_request(&fixture, from, method, "/v1alpha1/replicas", &own).await;
            let result = (response.code, &response.body["data"]);
            assert_eq!(
                result,
                (200, &list_record(AGGREGATOR_NAME, &[])),
                "{method}"
            );
        }
    }
    let foreign = json!({"namespace": "rl", "coordinator": "v-aggregator-abcde"}).to_string();
    for (method, path) in [
        ("POST", path),
        ("POST", "/v1alpha1/replicas"),
        ("DELETE", "/v1alpha1/replicas"),
    ] {
        let response = send_request(&fixture, AGGREGATOR_IP, method, path, &foreign).await;
        assert_eq!(response.code, 403, "{method} {path}");
    }
    assert_eq!(names::job_of_aggregator(AGGREGATOR_NAME), Some("u"));
}

#[tokio::test]
async fn f23_multi_gpu_learners_need_an_aggregator_config() {
    let fixture = group_fixture(|_| {});
    // The API server is unreachable: reading the AggregatorConfig fails before the plan is written.
    let add_body = |gpus: u32| {
        json!({"namespace": "rl", "coordinator": "u-coordinator", "learners": {"replicas": 1, "gpus": gpus}}).to_string()
    };
    for (version, code) in [("v1alpha1", 200), ("v1alpha2", 503)] {
        let path = format!("/{version}/replicas");
        let response = send_request(&fixture, COORDINATOR, "POST", &path, &add_body(4)).await;
        assert_eq!(
            (response.code, &response.body["success"]),
            (code, &json!(false))
        );
        let message = response.body["message"].as_str().unwrap();
        assert!(message.contains("read the AggregatorConfig"), "{message}");
    }
}
