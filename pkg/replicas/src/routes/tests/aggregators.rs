//! Learners of several GPUs: what coordinators see of them, and what their aggregators do.

use di_api::{Role, names};
use di_plan::PodView;
use serde_json::{Value, json};

use crate::fixture::{COORDINATOR, Fixture, fixture_with, job, pod, send_request, short_waits};

const AGGREGATOR: &str = "10.0.1.1";
const UNIT: &str = "u-aggregator-abcde";
const FIRST: &str = "u-ddp-learner-aaaaa";
const SECOND: &str = "u-ddp-learner-bbbbb";

fn ddp(name: &str, gpus: i32, rank: i32) -> Value {
    json!({
        "name": name, "type": "DDPLearner", "origin": "Requested", "index": rank, "resources": {"gpus": gpus.to_string()},
        "ddp": {"aggregator": UNIT, "worldSize": 3, "startRank": rank},
    })
}

fn plan() -> Value {
    json!([
        {"name": "u-learner-aaaaa", "type": "Learner", "origin": "Requested", "index": 0, "resources": {"gpus": "1"}},
        {"name": UNIT, "type": "Aggregator", "origin": "Requested", "index": 0, "port": 5000, "resources": {"gpus": "3"}},
        ddp(FIRST, 2, 0),
        ddp(SECOND, 1, 2),
        {"name": "u-aggregator-waits", "type": "Aggregator", "origin": "Declared", "index": 1, "resources": {"gpus": "2"}},
        {"name": "u-aggregator-going", "type": "Aggregator", "origin": "Declared", "index": 2, "port": 5000, "state": "Removing"},
    ])
}

fn member(name: &str, port: i32) -> PodView {
    let mut pod = pod("u", Role::DdpLearner, name, "u-uid", "10.0.1.9");
    pod.port = port;
    pod
}

fn fixture(change: impl FnOnce(&mut [PodView])) -> Fixture {
    let mut aggregator = pod("u", Role::Aggregator, UNIT, "u-uid", AGGREGATOR);
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
        member(FIRST, 22271),
        member(SECOND, 22273),
    ];
    change(&mut pods);
    let status = json!({"phase": "Running", "plan": plan()});
    fixture_with(
        short_waits(),
        [job("u", &status), job("v", &json!({}))],
        pods,
    )
}

async fn list(fixture: &Fixture, query: &str) -> (u16, Value) {
    let path = format!("/v1alpha1/replicas?namespace=rl&{query}");
    let answer = send_request(fixture, AGGREGATOR, "GET", &path, "{}").await;
    (answer.code, answer.body["data"].clone())
}

fn record(coordinator: &str, learners: &[&str]) -> Value {
    json!({"namespace": "rl", "coordinator": coordinator, "collectors": [], "learners": learners})
}

#[tokio::test]
async fn an_aggregator_sees_every_process_of_its_ddp_learners() {
    let fixture = fixture(|_| {});
    let all = [
        "u-ddp-learner-aaaaa.rl:22271",
        "u-ddp-learner-aaaaa.rl:22272",
        "u-ddp-learner-bbbbb.rl:22273",
    ];
    let answer = list(&fixture, &format!("aggregator={UNIT}")).await;
    assert_eq!(answer, (200, record(UNIT, &all)));
    let going = list(&fixture, "aggregator=u-aggregator-going").await;
    assert_eq!(going, (200, record("u-aggregator-going", &[])));
}

#[tokio::test]
async fn a_coordinator_sees_aggregators_and_not_what_is_behind_them() {
    let usable = ["u-learner-aaaaa.rl:22271", "u-aggregator-abcde.rl:5000"];
    let answer = list(&fixture(|_| {}), "coordinator=u-coordinator").await;
    assert_eq!(answer, (200, record("u-coordinator", &usable)));
    // One that cannot start, has failed or goes makes the whole unit useless.
    let stuck: fn(&mut PodView) = |pod| pod.scheduled = Err("no room".into());
    let going: fn(&mut PodView) = |pod| pod.deleting = true;
    for (which, change) in [(2, stuck), (3, stuck), (3, going), (1, stuck)] {
        let fixture = fixture(|pods| change(&mut pods[which]));
        let answer = list(&fixture, "coordinator=u-coordinator").await;
        assert_eq!(
            answer,
            (200, record("u-coordinator", &usable[..1])),
            "{which}"
        );
    }
}

#[tokio::test]
async fn f27_every_combination_of_keys_has_an_answer() {
    let fixture = fixture(|_| {});
    let second = record(UNIT, &["u-ddp-learner-bbbbb.rl:22273"]);
    let unit = record("u-coordinator", &["u-aggregator-abcde.rl:5000"]);
    let all = list(&fixture, &format!("aggregator={UNIT}")).await.1;
    let nothing = Value::Null;
    for (query, code, data) in [
        (format!("name={SECOND}"), 200, &second),
        (
            format!("name={SECOND}&coordinator=u-coordinator"),
            200,
            &second,
        ),
        (format!("name={SECOND}&aggregator={UNIT}"), 200, &second),
        (
            format!("name={SECOND}&aggregator={UNIT}&coordinator=u-coordinator"),
            200,
            &second,
        ),
        (
            format!("aggregator={UNIT}&coordinator=u-coordinator"),
            200,
            &all,
        ),
        (format!("name={UNIT}"), 200, &unit),
        (format!("name={UNIT}&coordinator=u-coordinator"), 200, &unit),
        (format!("name={UNIT}&aggregator={UNIT}"), 404, &nothing),
        (
            format!("name={SECOND}&coordinator=v-coordinator"),
            404,
            &nothing,
        ),
        (
            format!("name={SECOND}&aggregator=u-aggregator-waits"),
            404,
            &nothing,
        ),
        (
            format!("aggregator={UNIT}&coordinator=v-coordinator"),
            404,
            &nothing,
        ),
        (format!("aggregator={FIRST}"), 404, &nothing),
        ("aggregator=u-coordinator".to_owned(), 404, &nothing),
    ] {
        let (found, record) = list(&fixture, &query).await;
        assert_eq!((found, &record), (code, data), "{query}");
    }
}

#[tokio::test]
async fn f27_each_of_the_sixteen_sets_of_keys_has_an_answer() {
    let fixture = fixture(|_| {});
    let of_job = record(
        "u-coordinator",
        &["u-learner-aaaaa.rl:22271", "u-aggregator-abcde.rl:5000"],
    );
    let jobs = json!([of_job, record("v-coordinator", &[])]);
    let of_unit = record(
        UNIT,
        &[
            "u-ddp-learner-aaaaa.rl:22271",
            "u-ddp-learner-aaaaa.rl:22272",
            "u-ddp-learner-bbbbb.rl:22273",
        ],
    );
    let second = record(UNIT, &["u-ddp-learner-bbbbb.rl:22273"]);
    let nothing = Value::Null;
    for set in 0..16 {
        let [namespace, coordinator, aggregator, name] = [1, 2, 4, 8].map(|key| set & key > 0);
        let keys = [
            (namespace, "namespace=rl".to_owned()),
            (coordinator, "coordinator=u-coordinator".to_owned()),
            (aggregator, format!("aggregator={UNIT}")),
            (name, format!("name={SECOND}")),
        ];
        let asked = keys.into_iter().filter(|(asked, _)| *asked);
        let asked: Vec<_> = asked.map(|(_, key)| key).collect();
        let path = format!("/v1alpha1/replicas?{}", asked.join("&"));
        let expected = match (namespace, coordinator, aggregator, name) {
            (_, false, false, false) => (200, &jobs),
            (false, ..) => (400, &nothing),
            (true, _, _, true) => (200, &second),
            (true, _, true, false) => (200, &of_unit),
            (true, true, false, false) => (200, &of_job),
        };
        let answer = send_request(&fixture, AGGREGATOR, "GET", &path, "").await;
        assert_eq!((answer.code, &answer.body["data"]), expected, "{path}");
    }
}

#[tokio::test]
async fn an_aggregator_may_speak_for_its_job() {
    let fixture = fixture(|_| {});
    let body =
        json!({"namespace": "rl", "coordinator": UNIT, "learners": ["nobody", "nobody.rl:1"]});
    let path = "/v1alpha1/replicas/failed";
    let answer = send_request(&fixture, AGGREGATOR, "POST", path, &body.to_string()).await;
    assert_eq!(
        (answer.code, &answer.body["data"]),
        (200, &record(UNIT, &[]))
    );
    let own = json!({"namespace": "rl", "coordinator": UNIT}).to_string();
    for method in ["POST", "DELETE"] {
        for from in [AGGREGATOR, COORDINATOR] {
            let answer = send_request(&fixture, from, method, "/v1alpha1/replicas", &own).await;
            let told = (answer.code, &answer.body["data"]);
            assert_eq!(told, (200, &record(UNIT, &[])), "{method}");
        }
    }
    let foreign = json!({"namespace": "rl", "coordinator": "v-aggregator-abcde"}).to_string();
    for (method, path) in [
        ("POST", path),
        ("POST", "/v1alpha1/replicas"),
        ("DELETE", "/v1alpha1/replicas"),
    ] {
        let answer = send_request(&fixture, AGGREGATOR, method, path, &foreign).await;
        assert_eq!(answer.code, 403, "{method} {path}");
    }
    assert_eq!(names::job_of_aggregator(UNIT), Some("u"));
}

#[tokio::test]
async fn f23_only_learners_of_several_gpus_need_a_configuration() {
    let fixture = fixture(|_| {});
    // The API server is away, so that nothing can be planned: of these faults, the second is found first.
    let asked = |gpus: u32| {
        json!({"namespace": "rl", "coordinator": "u-coordinator", "learners": {"replicas": 1, "gpus": gpus}}).to_string()
    };
    for (version, code) in [("v1alpha1", 200), ("v1alpha2", 503)] {
        let path = format!("/{version}/replicas");
        let answer = send_request(&fixture, COORDINATOR, "POST", &path, &asked(4)).await;
        assert_eq!(
            (answer.code, &answer.body["success"]),
            (code, &json!(false))
        );
        let said = answer.body["message"].as_str().unwrap();
        assert!(said.contains("read the AggregatorConfig"), "{said}");
    }
}
