//! Responses of the older version do not change: these are their bytes before the newer version got
//! generations, also for jobs whose members are counted.

use std::net::SocketAddr;

use axum::{
    body::Body,
    extract::{ConnectInfo, Request},
};
use di_api::Role;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::{Endpoint, Settings, fixture::*};

const AGGREGATOR: &str = "a-aggregator-abcde";
const LEARNER: &str = "a-ddp-learner-aaaaa";

/// Status and body of a response, which has no header of the newer version.
async fn call(
    fixture: &Fixture,
    from: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, String) {
    let request = Request::builder()
        .method(method)
        .uri(format!("/v1alpha1/replicas{path}"))
        .header("if-none-match", "*");
    let mut request = request.body(Body::from(body.to_string())).unwrap();
    let peer = SocketAddr::new(from.parse().unwrap(), 40000);
    request.extensions_mut().insert(ConnectInfo(peer));
    let response = Endpoint::new(fixture.state.clone())
        .handle_request(request)
        .await;
    for name in response.headers().keys() {
        let is_known = ["content-type", "content-length"].contains(&name.as_str());
        assert!(is_known, "{method} {path}: {name}");
    }
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

fn success(message: &str, data: &str) -> (u16, String) {
    let body = format!(r#"{{"success":true,"code":0,"message":"{message}","data":{data}}}"#);
    (200, body)
}

fn failure(code: u16, message: &str) -> (u16, String) {
    let body = format!(r#"{{"success":false,"code":1,"message":"{message}","data":null}}"#);
    (code, body)
}

fn record(coordinator: &str, collectors: &str, learners: &str) -> String {
    format!(
        r#"{{"namespace":"rl","coordinator":"{coordinator}","collectors":[{collectors}],"learners":[{learners}]}}"#
    )
}

/// A job with counted members and a learner group, and a job without replicas.
fn list_fixture() -> Fixture {
    let place = json!({"aggregator": AGGREGATOR, "worldSize": 2, "startRank": 0});
    let plan = json!([
        {"name": "a-collector-run", "type": "Collector", "origin": "Requested", "index": 0, "listed": true},
        {"name": "a-collector-new", "type": "Collector", "origin": "Requested", "index": 1},
        {"name": "a-learner-new", "type": "Learner", "origin": "Declared", "index": 0, "listed": true},
        {"name": AGGREGATOR, "type": "Aggregator", "origin": "Requested", "index": 0, "port": 5000, "resources": {"gpus": "2"}},
        {"name": LEARNER, "type": "DDPLearner", "origin": "Requested", "index": 0, "resources": {"gpus": "2"}, "ddp": place},
    ]);
    let status = json!({"phase": "Running", "membershipGeneration": 7, "plan": plan});
    let coordinator = pod(
        "a",
        Role::Coordinator,
        "a-coordinator",
        "a-uid",
        COORDINATOR,
    );
    let run = pod("a", Role::Collector, "a-collector-run", "a-uid", COLLECTOR);
    let jobs = [job("a", &status), job("b", &json!({}))];
    fixture_with(short_waits(), jobs, [coordinator, run])
}

#[tokio::test]
async fn lists_of_older_version_have_the_same_bytes() {
    let fixture = list_fixture();
    let run = r#""a-collector-run.rl:22270""#;
    let collectors = format!(r#"{run},"a-collector-new.rl:4000""#);
    let learners = r#""a-learner-new.rl:22271","a-aggregator-abcde.rl:5000""#;
    let one = record("a-coordinator", &collectors, learners);
    let all = format!("[{one},{}]", record("b-coordinator", "", ""));
    let processes = r#""a-ddp-learner-aaaaa.rl:22271","a-ddp-learner-aaaaa.rl:22272""#;
    let processes = record(AGGREGATOR, "", processes);
    let unknown_key = |key: &str| {
        let known = "known are namespace, coordinator, aggregator and name";
        failure(400, &format!("unknown query parameter {key}; {known}"))
    };
    for (query, expected) in [
        ("namespace=rl&coordinator=a-coordinator", success("", &one)),
        ("namespace=rl", success("", &all)),
        ("", success("", &all)),
        (
            "namespace=rl&name=a-collector-run",
            success("", &record("a-coordinator", run, "")),
        ),
        (
            "namespace=rl&aggregator=a-aggregator-abcde",
            success("", &processes),
        ),
        (
            "namespace=rl&name=a-ddp-learner-aaaaa",
            success("", &processes),
        ),
        (
            "namespace=rl&name=unknown",
            failure(404, "there is no replica unknown in namespace rl"),
        ),
        ("namespace=rl&generation=7", unknown_key("generation")),
        ("namespace=rl&wait=1s", unknown_key("wait")),
    ] {
        let path = format!("?{query}");
        let found = call(&fixture, COORDINATOR, "GET", &path, &json!({})).await;
        assert_eq!(found, expected, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn changes_of_older_version_have_the_same_bytes() {
    let settings = Settings {
        allow_anonymous: true,
        ..short_waits()
    };
    let status = json!({"phase": "Running", "membershipGeneration": 7, "plan": []});
    let fixture = writable_fixture(settings, job("n", &status), []);
    let last_name = || {
        let job = fixture.state.jobs.get(&("rl".to_owned(), "n".to_owned()));
        job.unwrap().plan.last().unwrap().name.clone()
    };
    let with = |collectors: Value| json!({"namespace": "rl", "coordinator": "n-coordinator", "collectors": collectors});
    let answer = |message: &str, name: &str| {
        let url = format!(r#""{name}.rl:4000""#);
        success(message, &record("n-coordinator", &url, ""))
    };
    let send = async |method: &'static str, path: &'static str, collectors: Value| {
        call(&fixture, UNKNOWN, method, path, &with(collectors)).await
    };
    let added = send("POST", "", json!({"replicas": 1})).await;
    let first = last_name();
    assert_eq!(added, answer("the replicas are planned", &first));
    let failed = send("POST", "/failed", json!([first])).await;
    let second = last_name();
    assert_ne!(first, second);
    assert_eq!(failed, answer("the replicas are replaced", &second));
    let removed = send("DELETE", "", json!({"replicas": 1})).await;
    assert_eq!(removed, answer("the replicas are removed", &second));
}
