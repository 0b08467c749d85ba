//! Requests about units: replicas of several pods.

use di_api::{EntryState, PlanEntry, Role, UnitPlace};
use di_plan::PodView;
use serde_json::{Value, json};

use crate::{Settings, fixture::*};

const LEADER: &str = "n-collector-aaaaa";
const MEMBER: &str = "n-collector-aaaaa-1";

fn settings() -> Settings {
    Settings {
        allow_anonymous: true,
        ..short_waits()
    }
}

/// A job whose collectors are units of two.
fn unit_job(plan: &Value) -> Value {
    let mut job = job("n", &json!({"phase": "Running", "plan": plan}));
    job["spec"]["collector"]["unit"] = json!({"size": 2});
    job
}

fn unit_plan() -> Value {
    let entry = |name: &str, place: Value| json!({"name": name, "type": "Collector", "origin": "Requested", "index": 0, "unit": place});
    json!([
        entry(LEADER, json!({"index": 0, "size": 2})),
        entry(MEMBER, json!({"leader": LEADER, "index": 1, "size": 2})),
    ])
}

fn unit_pods() -> [PodView; 2] {
    [LEADER, MEMBER].map(|name| pod("n", Role::Collector, name, "n-uid", COLLECTOR))
}

async fn call(fixture: &Fixture, method: &str, path: &str, body: &Value) -> TestResponse {
    let path = format!("/v1alpha2/replicas{path}");
    send_request(fixture, UNKNOWN, method, &path, &body.to_string()).await
}

async fn list(fixture: &Fixture, query: &str) -> Value {
    let path = format!("?namespace=rl&coordinator=n-coordinator{query}");
    let response = call(fixture, "GET", &path, &json!({})).await;
    assert_eq!(response.code, 200, "{}", response.body);
    response.body["data"]["collectors"].clone()
}

/// The body of a request for this number of collectors.
fn collectors(replicas: usize) -> Value {
    json!({"namespace": "rl", "coordinator": "n-coordinator", "collectors": {"replicas": replicas}})
}

fn plan_of(fixture: &Fixture) -> Vec<PlanEntry> {
    let key = ("rl".to_owned(), "n".to_owned());
    fixture.state.jobs.get(&key).unwrap().plan.clone()
}

#[tokio::test]
async fn complete_unit_is_listed_by_its_leader() {
    let running: fn(&mut [PodView]) = |_| {};
    let lost: fn(&mut [PodView]) = |pods| pods[1].deleting = true;
    let unscheduled: fn(&mut [PodView]) = |pods| pods[1].scheduled = Ok(false);
    let url = json!(["n-collector-aaaaa.rl:22270"]);
    for (change, expected) in [
        (running, &url),
        (lost, &json!([])),
        (unscheduled, &json!([])),
    ] {
        let mut pods = unit_pods();
        change(&mut pods);
        let fixture = fixture_with(settings(), [unit_job(&unit_plan())], pods);
        assert_eq!(list(&fixture, "").await, *expected);
        assert_eq!(list(&fixture, &format!("&name={LEADER}")).await, *expected);
        let member = list(&fixture, &format!("&name={MEMBER}")).await;
        assert_eq!(member, json!([]), "not an address of a replica");
    }
}

#[tokio::test(start_paused = true)]
async fn request_adds_leader_and_counts_all_pods() {
    let settings = Settings {
        max_replicas_per_job: 3,
        ..settings()
    };
    let fixture = writable_fixture(settings, unit_job(&json!([])), []);
    let response = call(&fixture, "POST", "", &collectors(2)).await;
    assert_eq!(response.code, 400, "two units have four pods");
    let response = call(&fixture, "POST", "", &collectors(1)).await;
    assert_eq!(response.code, 200, "{}", response.body);
    assert_eq!(
        response.body["data"]["collectors"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let plan = plan_of(&fixture);
    let [leader] = &plan[..] else {
        panic!("{plan:?}");
    };
    assert_eq!(leader.unit, Some(UnitPlace::of_leader(2)));
}

#[tokio::test]
async fn removed_unit_is_one_replica() {
    let fixture = writable_fixture(settings(), unit_job(&unit_plan()), unit_pods());
    let response = call(&fixture, "DELETE", "", &collectors(1)).await;
    assert_eq!(response.code, 200, "{}", response.body);
    let removed = response.body["data"]["collectors"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(removed, 1);
    let plan = plan_of(&fixture);
    let is_removed = |entry: &PlanEntry| entry.state == EntryState::Removing;
    assert!(plan.iter().all(is_removed), "{plan:?}");
}

#[tokio::test]
async fn failure_report_of_any_pod_replaces_unit() {
    for name in [LEADER, MEMBER] {
        let fixture = writable_fixture(settings(), unit_job(&unit_plan()), unit_pods());
        let failed = json!({
            "namespace": "rl", "coordinator": "n-coordinator", "collectors": [name], "learners": [],
        });
        let response = call(&fixture, "POST", "/failed", &failed).await;
        assert_eq!(response.code, 200, "{}", response.body);
        let plan = plan_of(&fixture);
        let new = plan.last().unwrap();
        let url = format!("{}.rl:4000", new.name);
        assert_eq!(response.body["data"]["collectors"], json!([url]));
        assert_eq!(new.replaces.as_deref(), Some(LEADER));
        assert!(new.reported && new.is_wanted());
        let old = plan.iter().filter(|e| e.state == EntryState::Replaced);
        assert_eq!(old.count(), 2);
        assert_eq!(
            list(&fixture, "").await,
            json!([]),
            "its pods are not planned"
        );
    }
}
