use di_client::replicas_of;
use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

/// A job with everything: collectors of which one fails, and a logic learner.
fn job() -> Job {
    let entry = |name: &str, role: &str, index: i32| {
        json!({"name": format!("cartpole-{name}"), "type": role, "origin": "Declared", "index": index,
            "plannedAt": "2026-01-01T00:59:50Z"})
    };
    let mut old = entry("collector-ooooo", "Collector", 1);
    old["state"] = "Replaced".into();
    let ddp = |name: &str, index| {
        let mut entry = entry(name, "DDPLearner", index);
        entry["ddp"] =
            json!({"aggregator": "cartpole-aggregator-aaaaa", "worldSize": 2, "startRank": index});
        entry
    };
    Job::from(json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2",
        "kind": "DIJob",
        "metadata": {
            "name": "cartpole", "namespace": "rl", "uid": "u", "creationTimestamp": "2026-01-01T00:55:00Z",
            "labels": {"team": "rl", "tier": "test"},
        },
        "spec": {"cleanPodPolicy": "Running", "backoffLimit": 3, "priorityClassName": "", "suspend": false},
        "status": {
            "phase": "Running", "reason": "ImagePullBackOff", "restarts": 1,
            "startTime": "2026-01-01T00:56:00Z",
            "collectorsReady": "1/2", "learnersReady": "1/1",
            "conditions": [
                {"type": "Created", "status": "True", "reason": "CoordinatorCreated", "message": "",
                 "lastTransitionTime": "2026-01-01T00:56:00Z"},
                {"type": "ReplicasReady", "status": "False", "reason": "ImagePullBackOff",
                 "message": "no such\nimage", "lastTransitionTime": "2026-01-01T00:57:00Z"},
            ],
            "plan": [
                entry("collector-aaaaa", "Collector", 0), old, entry("collector-bbbbb", "Collector", 1),
                entry("aggregator-aaaaa", "Aggregator", 0), ddp("ddp-learner-aaaaa", 0), ddp("ddp-learner-bbbbb", 1),
                entry("learner-aaaaa", "Learner", 1),
            ],
        },
    }))
}

fn replicas(job: &Job) -> Vec<Replica> {
    let pod = |name: &str, role: &str, status: &Value| {
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("cartpole-{name}"), "creationTimestamp": "2026-01-01T00:56:00Z",
                "labels": {"replica-type": role},
            },
            "spec": {"nodeName": "node-1", "containers": [{"name": "di-container"}]},
            "status": status,
        }))
        .unwrap()
    };
    let status = |phase: &str, state: &Value| {
        json!({"phase": phase, "containerStatuses": [{
            "name": "di-container", "ready": phase == "Running", "restartCount": 0, "image": "", "imageID": "", "state": state,
        }]})
    };
    let runs = status("Running", &json!({"running": {}}));
    let waits = status(
        "Pending",
        &json!({"waiting": {"reason": "ImagePullBackOff"}}),
    );
    let killed = status(
        "Failed",
        &json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
    );
    let pods = vec![
        pod("coordinator", "coordinator", &runs),
        pod("collector-aaaaa", "collector", &runs),
        pod("collector-ooooo", "collector", &killed),
        pod("collector-bbbbb", "collector", &waits),
        pod("aggregator-aaaaa", "aggregator", &runs),
        pod("ddp-learner-aaaaa", "ddp-learner", &runs),
        pod("ddp-learner-bbbbb", "ddp-learner", &runs),
    ];
    replicas_of(job, &pods)
}

fn shown(job: &Job, replicas: &[Replica], events: Option<&Result<Vec<Event>, String>>) -> String {
    Screen {
        job,
        replicas,
        events,
        now: now(),
        colours: Colours::none(),
    }
    .to_string()
}

#[test]
fn all_about_a_job_stands_on_one_screen() {
    let job = job();
    let event = |kind: &str, reason: &str, count: i32| {
        Event::from(json!({
            "type": kind, "reason": reason, "message": "tried\nagain", "count": count,
            "firstTimestamp": "2026-01-01T00:56:00Z", "lastTimestamp": "2026-01-01T00:58:00Z",
            "source": {"component": "kubelet"}, "involvedObject": {"kind": "Pod", "name": "cartpole-collector-bbbbb"},
        }))
    };
    let events = Ok(vec![
        event("Normal", "Pulling", 1),
        event("Warning", "BackOff", 4),
    ]);
    insta::assert_snapshot!(shown(&job, &replicas(&job), Some(&events)));
}

#[test]
fn a_job_that_nobody_has_looked_at_yet_is_described() {
    let job = Job::from(json!({"metadata": {"name": "new", "namespace": "rl"}, "spec": {}}));
    insta::assert_snapshot!(shown(&job, &[], Some(&Ok(Vec::new()))), @r"
    Name:         new
    Namespace:    rl
    Labels:       <none>
    Annotations:  <none>
    Created:      <none>
    Phase:        <none>
    Restarts:     0
    Conditions:  <none>
    Replicas:  <none>
    Events:  <none>
    ");
}

#[test]
fn events_that_may_not_be_seen_hide_nothing_else() {
    let job = job();
    let text = shown(
        &job,
        &[],
        Some(&Err("Error from server (Forbidden): no".to_owned())),
    );
    assert!(
        text.ends_with("Events:  Error from server (Forbidden): no\n"),
        "{text}"
    );
    assert!(!shown(&job, &[], None).contains("Events"));
}
