use serde_json::{Value, json};

use super::*;

/// The main container with this `di-port`.
fn container(port: u16) -> Value {
    json!({"name": "di-container", "ports": [{"name": "di-port", "containerPort": port}]})
}

fn job(status: Value) -> Job {
    let learner = json!({"template": {"spec": {"containers": [container(9000)]}}});
    let job = di_fixtures::Job::test().spec(json!({"learner": learner}));
    Job::from(job.status(status).json())
}

fn job_with_plan() -> Job {
    job(json!({"plan": [
        {"name": "j-learner-aaaaa", "type": "Learner", "origin": "Declared", "index": 0},
        {"name": "j-collector-bbbbb", "type": "Collector", "origin": "Requested", "index": 1},
        {"name": "j-collector-ccccc", "type": "Collector", "origin": "Declared", "index": 0, "replaces": "j-collector-ddddd"},
        {"name": "j-collector-ddddd", "type": "Collector", "origin": "Declared", "index": 0, "state": "Replaced"},
    ]}))
}

fn pod(name: &str, role: &str) -> Pod {
    di_fixtures::Pod::test(name, role)
        .spec(json!({"containers": [container(8000), {"name": "sidecar"}]}))
        .status(json!({"phase": "Running", "containerStatuses": [
            {"name": "di-container", "ready": true, "restartCount": 2},
            {"name": "sidecar", "ready": false, "restartCount": 1},
        ], "initContainerStatuses": [{"name": "data", "ready": true, "restartCount": 4}]}))
        .build()
}

#[test]
fn learner_group_urls_use_planned_ports() {
    let job = job(json!({"plan": [
        {"name": "a", "type": "Aggregator", "origin": "Declared", "index": 0, "port": 5000},
        {"name": "d", "type": "DDPLearner", "origin": "Declared", "index": 0,
         "ddp": {"aggregator": "a", "worldSize": 8, "startRank": 4, "master": "m"}},
    ]}));
    let replicas = join_plan_with_pods(&job, &[]);
    let urls: Vec<_> = replicas.iter().map(|r| r.url.as_str()).collect();
    assert_eq!(urls, ["a.rl:5000", "d.rl:9004"]);
}

#[test]
fn plan_and_pods_are_joined_by_role_and_index() {
    let pods = [
        pod("j-collector-zzzzz", "collector"),
        pod("j-collector-ccccc", "collector"),
        pod("j-coordinator", "coordinator"),
    ];
    let replicas = join_plan_with_pods(&job_with_plan(), &pods);
    let rows: Vec<_> = replicas
        .iter()
        .map(|r| {
            (
                r.name.as_str(),
                r.index,
                r.origin,
                r.display_status(),
                r.url.as_str(),
            )
        })
        .collect();
    let (declared, requested) = (Some(Origin::Declared), Some(Origin::Requested));
    assert_eq!(
        rows,
        [
            (
                "j-coordinator",
                Some(0),
                declared,
                "Running",
                "j-coordinator.rl:8000"
            ),
            (
                "j-collector-ddddd",
                Some(0),
                declared,
                "Replaced",
                "j-collector-ddddd.rl:22270"
            ),
            (
                "j-collector-ccccc",
                Some(0),
                declared,
                "Running",
                "j-collector-ccccc.rl:8000"
            ),
            (
                "j-collector-bbbbb",
                Some(1),
                requested,
                "Planned",
                "j-collector-bbbbb.rl:22270"
            ),
            (
                "j-collector-zzzzz",
                None,
                None,
                "Running",
                "j-collector-zzzzz.rl:8000"
            ),
            (
                "j-learner-aaaaa",
                Some(0),
                declared,
                "Planned",
                "j-learner-aaaaa.rl:9000"
            ),
        ]
    );
    let pod = replicas[2].pod.as_ref().unwrap();
    assert_eq!((pod.ready, pod.containers, pod.restarts), (1, 2, 7));
    assert_eq!(replicas[2].replaces.as_deref(), Some("j-collector-ddddd"));
}

#[test]
fn missing_coordinator_is_listed_until_job_ends() {
    for (phase, awaited) in [
        (None, false),
        (Some("Created"), true),
        (Some("Running"), true),
        (Some("Suspended"), true),
        (Some("Succeeded"), false),
        (Some("Failed"), false),
    ] {
        let replicas = join_plan_with_pods(&job(json!({"phase": phase})), &[]);
        let rows: Vec<_> = replicas
            .iter()
            .map(|r| (&*r.name, r.display_status()))
            .collect();
        let expected: &[_] = if awaited {
            &[("j-coordinator", "Planned")]
        } else {
            &[]
        };
        assert_eq!(rows, expected, "{phase:?}");
    }
}

#[test]
fn replica_that_waits_for_quota_is_queued() {
    let entry = |index: i32, queue: &str| {
        json!({
            "name": format!("c{index}"), "type": "Collector", "origin": "Requested", "index": index, "queue": queue,
        })
    };
    let job = job(json!({"plan": [entry(0, "Waiting"), entry(1, "Admitted")]}));
    let replicas = join_plan_with_pods(&job, &[]);
    let shown: Vec<_> = replicas.iter().map(Replica::display_status).collect();
    assert_eq!(shown, ["Queued", "Planned"]);
}
