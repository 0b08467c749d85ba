use serde_json::json;

use super::*;

fn job() -> Job {
    Job::from(json!({
        "metadata": {"name": "j", "namespace": "rl", "uid": "u"},
        "spec": {"learner": {"template": {"spec": {"containers": [
            {"name": "di-container", "ports": [{"name": "di-port", "containerPort": 9000}]},
        ]}}}},
        "status": {"plan": [
            {"name": "j-learner-aaaaa", "type": "Learner", "origin": "Declared", "index": 0},
            {"name": "j-collector-bbbbb", "type": "Collector", "origin": "Requested", "index": 1},
            {"name": "j-collector-ccccc", "type": "Collector", "origin": "Declared", "index": 0, "replaces": "j-collector-ddddd"},
            {"name": "j-collector-ddddd", "type": "Collector", "origin": "Declared", "index": 0, "state": "Replaced"},
        ]},
    }))
}

fn pod(name: &str, role: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"replica-type": role, "dijob-name": "j"}},
        "spec": {"nodeName": "n1", "containers": [
            {"name": "di-container", "ports": [{"name": "di-port", "containerPort": 8000}]},
            {"name": "sidecar"},
        ]},
        "status": {"phase": "Running", "containerStatuses": [
            {"name": "di-container", "ready": true, "restartCount": 2, "image": "", "imageID": ""},
            {"name": "sidecar", "ready": false, "restartCount": 1, "image": "", "imageID": ""},
        ]},
    }))
    .unwrap()
}

#[test]
fn learner_group_urls_use_planned_ports() {
    let mut job = job();
    let plan = json!([
        {"name": "a", "type": "Aggregator", "origin": "Declared", "index": 0, "port": 5000},
        {"name": "d", "type": "DDPLearner", "origin": "Declared", "index": 0,
         "ddp": {"aggregator": "a", "worldSize": 8, "startRank": 4, "master": "m"}},
    ]);
    job.status.plan = serde_json::from_value(plan).unwrap();
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
    let replicas = join_plan_with_pods(&job(), &pods);
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
    assert_eq!((pod.ready, pod.containers, pod.restarts), (1, 2, 3));
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
        let job = Job::from(json!({
            "metadata": {"name": "j", "namespace": "rl", "uid": "u"},
            "status": {"phase": phase},
        }));
        let replicas = join_plan_with_pods(&job, &[]);
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
