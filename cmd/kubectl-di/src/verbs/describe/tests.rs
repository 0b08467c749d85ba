use di_client::join_plan_with_pods;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

/// A job with all roles: two collectors, one of them failing, and a learner group.
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
        entry["resources"] = json!({"gpus": "1"});
        entry
    };
    let job = di_fixtures::Job::test()
        .named("cartpole")
        .clean_pod_policy("Running")
        .metadata(json!({
            "creationTimestamp": "2026-01-01T00:55:00Z",
            "labels": {"team": "rl", "tier": "test"},
            "annotations": {"owner": "me", "diengine.opendilab.org/let-go-first": "cartpole-collector-ooooo"},
        }))
        .spec(json!({"backoffLimit": 3, "priorityClassName": "", "suspend": false}))
        .status(json!({
            "phase": "Running", "reason": "ImagePullBackOff", "restarts": 1,
            "startTime": "2026-01-01T00:56:00Z",
            "collectorsReady": "1/2", "learnersReady": "1/2",
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
        }));
    Job::from(job.json())
}

fn replicas(job: &Job) -> Vec<Replica> {
    join_plan_with_pods(job, &pods())
}

fn pods() -> Vec<Pod> {
    let pod = |name: &str, role: &str, phase: &str, state: Value| {
        let main = json!({"name": "di-container", "ready": phase == "Running", "state": state});
        di_fixtures::Pod::test(&format!("cartpole-{name}"), role)
            .metadata(json!({"creationTimestamp": "2026-01-01T00:56:00Z"}))
            .spec(json!({"nodeName": "node-1"}))
            .phase(phase)
            .status(json!({"containerStatuses": [main]}))
            .build()
    };
    let running = |name: &str, role: &str| pod(name, role, "Running", json!({"running": {}}));
    let waiting = json!({"waiting": {"reason": "ImagePullBackOff"}});
    let killed = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
    vec![
        running("coordinator", "coordinator"),
        running("collector-aaaaa", "collector"),
        pod("collector-ooooo", "collector", "Failed", killed),
        pod("collector-bbbbb", "collector", "Pending", waiting),
        running("aggregator-aaaaa", "aggregator"),
        running("ddp-learner-aaaaa", "ddp-learner"),
        running("ddp-learner-bbbbb", "ddp-learner"),
    ]
}

fn shown(job: &Job, replicas: &[Replica], events: Option<&Result<Vec<Event>, String>>) -> String {
    Screen {
        job,
        replicas,
        events,
        queue_position: job.status.queueing.is_none().then_some(3),
        now: now(),
        colours: Colours::none(),
    }
    .to_string()
}

#[test]
fn job_with_all_roles_is_described() {
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
fn new_job_without_status_is_described() {
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
fn last_failures_are_described_with_last_lines() {
    let failure = |code: i32| {
        json!({
            "pod": "cartpole-collector-x7k2p", "role": "Collector", "uid": "u", "exitCode": code,
            "reason": "Error", "at": "2026-01-01T00:58:00Z", "count": 1,
            "tail": "1\n2\n3\n4\n5\n6",
        })
    };
    let failures: Vec<_> = (1..=4).map(failure).collect();
    let job = di_fixtures::Job::test().status(json!({"failures": failures}));
    let text = shown(&Job::from(job.json()), &[], None);
    let first = "Failures:\n  cartpole-collector-x7k2p: Error (exit code 1), 2m ago\n      2\n";
    assert!(text.contains(first), "{text}");
    assert!(
        text.contains("exit code 3") && !text.contains("exit code 4"),
        "{text}"
    );
    assert!(
        text.contains("  and more: kubectl di failures j -n rl\n"),
        "{text}"
    );
}

/// A job in the queue `team-a` with this status.
fn queued_job(status: Value) -> Job {
    let labels = json!({"labels": {"kueue.x-k8s.io/queue-name": "team-a"}});
    let job = di_fixtures::Job::test().metadata(labels).status(status);
    Job::from(job.json())
}

#[test]
fn queued_job_is_described_with_the_message_of_kueue() {
    let job = queued_job(json!({
        "phase": "Queued", "reason": "QueueWaiting",
        "conditions": [
            {"type": "Admitted", "status": "False", "reason": "QueueWaiting", "message": "no\nquota",
             "lastTransitionTime": "2026-01-01T00:56:00Z"},
        ],
    }));
    insta::assert_snapshot!(shown(&job, &[], None), @r"
    Name:         j
    Namespace:    rl
    Labels:       kueue.x-k8s.io/queue-name=team-a
    Annotations:  <none>
    Created:      <none>
    Phase:        Queued
    Reason:       QueueWaiting
    Restarts:     0
    Queue:
      Local Queue:  team-a
      Admitted:     False
      Position:     3 (0 is the next)
      Reason:       QueueWaiting
      Message:      no quota
    Conditions:
      Type      Status  Reason        Age  Message
      ----      ------  ------        ---  -------
      Admitted  False   QueueWaiting  4m   no quota
    Replicas:  <none>
    ");
}

#[test]
fn admitted_job_is_described_with_flavors_and_waiting_replicas() {
    let placement = |pod_set: &str, flavors: Value, label: &str| json!({"podSet": pod_set, "flavors": flavors, "labels": {"kueue.x-k8s.io/podset": label}});
    let entry = |index: i32, queue: &str| {
        json!({
            "name": format!("j-collector-{index}"), "type": "Collector", "origin": "Requested",
            "index": index, "queue": queue,
        })
    };
    let job = queued_job(json!({
        "phase": "Running",
        "queueing": {
            "workload": "dijob-j-1f2e3", "clusterQueue": "cq-a",
            "placements": [
                placement("coordinator", json!(["default"]), "coordinator"),
                placement("collector", json!(["default", "spot"]), "collector"),
                placement("collector", json!(["default", "spot"]), "other"),
                placement("learner", json!([]), "learner"),
            ],
        },
        "conditions": [
            {"type": "Admitted", "status": "True", "reason": "QueueAdmitted", "message": "",
             "lastTransitionTime": "2026-01-01T00:56:00Z"},
        ],
        "plan": [entry(0, "Waiting"), entry(1, "Waiting"), entry(2, "Admitted")],
    }));
    let event = |type_: &str, reason: &str, minute: i32, message: &str| {
        Event::from(json!({
            "type": type_, "reason": reason, "message": message, "count": 1,
            "lastTimestamp": format!("2026-01-01T00:{minute}:00Z"),
        }))
    };
    let preempted = "Preempted to accommodate a workload (UID: u, JobUID: v) due to prioritization";
    let events = Ok(vec![
        event("Warning", "QueueEvicted", 50, "The LocalQueue is stopped"),
        event("Warning", "QueuePreempted", 55, preempted),
        event("Normal", "QueuePreempted", 56, "the job waits in its queue"),
        event("Warning", "ReplicaReplaced", 58, "failed"),
    ]);
    let text = shown(&job, &[], Some(&events));
    let block = "
Queue:
  Local Queue:       team-a
  Admitted:          True
  Cluster Queue:     cq-a
  Flavors:           coordinator: default
                     collector: default, spot
  Reason:            QueueAdmitted
  Waiting Replicas:  2 collectors
  Last Eviction:     QueuePreempted, 5m ago: Preempted to accommodate a workload due to prioritization
Conditions:
";
    assert!(text.contains(block), "{text}");
}

#[test]
fn gang_is_described_with_the_pods_that_wait() {
    let waiting = (
        "GangWaiting",
        "gang: 5 of 9 placed, waiting for nvidia.com/gpu",
    );
    let pulling = ("ImagePullBackOff", "no such image");
    let forbidden = ("GangForbidden", "podgroups is forbidden");
    let gang = |placed: bool| json!({"group": "dijob-j-1f2e3", "minMember": 9, "placed": placed});
    for (scheduling, (reason, message), expected) in [
        (
            gang(false),
            waiting,
            "5 of 9 placed, waiting for nvidia.com/gpu",
        ),
        (gang(false), pulling, "9 pods, not placed"),
        (gang(true), pulling, "placed"),
        (json!(null), forbidden, "podgroups is forbidden"),
        (json!(null), pulling, ""),
    ] {
        let job = di_fixtures::Job::test().status(json!({
            "phase": "Running", "scheduling": scheduling,
            "conditions": [
                {"type": "ReplicasReady", "status": "False", "reason": reason, "message": message,
                 "lastTransitionTime": "2026-01-01T00:56:00Z"},
            ],
        }));
        let text = shown(&Job::from(job.json()), &[], None);
        let line = text.lines().find_map(|line| line.strip_prefix("Gang:"));
        assert_eq!(line.map_or("", str::trim), expected, "{text}");
    }
}

#[test]
fn forbidden_events_do_not_hide_the_job() {
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

#[test]
fn latest_events_are_shown_of_many() {
    let event = |minute: usize| {
        Event::from(json!({
            "type": "Normal", "reason": format!("R{minute}"), "lastTimestamp": format!("2026-01-01T00:{minute:02}:00Z"),
        }))
    };
    let job = job();
    let described = |count| shown(&job, &[], Some(&Ok((0..count).map(event).collect())));
    assert!(!described(20).contains("earlier events"));
    let text = described(23);
    assert!(!text.contains("R2 ") && text.contains("R3 "), "{text}");
    assert!(
        text.ends_with("  and 3 earlier events: kubectl di events cartpole -n rl\n"),
        "{text}"
    );
}

#[test]
fn learner_group_is_ready_with_all_its_ddp_learners() {
    let job = job();
    for (lost, ready) in [("none", "1/2 ready"), ("ddp-learner-bbbbb", "0/2 ready")] {
        let mut pods = pods();
        pods.retain(|pod| !pod.name_any().ends_with(lost));
        let text = shown(&job, &join_plan_with_pods(&job, &pods), None);
        let mut lines = text.lines();
        let heading = lines.find(|line| line.starts_with("  Learners "));
        assert!(heading.is_some_and(|line| line.ends_with(ready)), "{text}");
    }
}

#[test]
fn unready_replicas_are_listed_of_many() {
    let job = job();
    let few = replicas(&job);
    let one = |name: &str| few.iter().find(|replica| replica.name.ends_with(name));
    let many = |name: &str, count: usize| -> Vec<_> {
        std::iter::repeat_n(one(name).unwrap(), count)
            .cloned()
            .collect()
    };
    // Nothing is folded up to the limit.
    let fifty = many("collector-aaaaa", 50);
    assert_eq!(shown(&job, &fifty, None).matches("└─ 50 ready").count(), 0);
    let mut all = few.clone();
    all.extend(many("collector-aaaaa", 60));
    all.extend(many("ddp-learner-aaaaa", 50));
    let text = shown(&job, &all, None);
    for line in [
        "  ├─ cartpole-collector-bbbbb ",
        "  └─ 61 ready\n",
        "     └─ 52 ready\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("collector-aaaaa"), "{text}");
}
