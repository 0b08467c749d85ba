use di_api::{DIJob, Reason};
use di_fixtures::{Job, Pod};
use serde_json::json;

use super::*;
use crate::view::{End, PodPhase};

const WAIT: SignedDuration = SignedDuration::from_secs(2);

fn collector_entry(name: &str, replaces: Option<&str>) -> serde_json::Value {
    json!({
        "name": name, "type": "Collector", "origin": "Requested", "index": 0,
        "plannedAt": "2026-01-01T00:00:00Z", "replaces": replaces,
    })
}

fn collector_pod(name: &str, conditions: &serde_json::Value) -> PodView {
    let pod = Pod::test(name, "collector").status(json!({"conditions": conditions}));
    PodView::new(&pod.build()).unwrap()
}

fn job_with_plan(plan: &[serde_json::Value]) -> Job {
    let job = Job::test().collectors(0).learners(0);
    job.status(json!({"plan": plan}))
}

fn list_collectors(plan: &[serde_json::Value], pods: &[PodView], at: &str) -> Vec<String> {
    let job: DIJob = job_with_plan(plan).build();
    let pod = |name: &str| pods.iter().find(|pod| pod.name == name);
    list_replicas(&job, pod, |_| false, at.parse().unwrap(), WAIT).collectors
}

#[test]
fn new_replica_is_listed_with_node_or_after_wait() {
    let plan = [collector_entry("new", None)];
    let (soon, late) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z");
    let scheduled_pod =
        |status: &str| collector_pod("new", &json!([{"type": "PodScheduled", "status": status}]));
    let url = ["new.rl:22270"];
    assert!(list_collectors(&plan, &[], soon).is_empty());
    assert!(list_collectors(&plan, &[collector_pod("new", &json!([]))], soon).is_empty());
    assert_eq!(list_collectors(&plan, &[scheduled_pod("True")], soon), url);
    assert!(list_collectors(&plan, &[scheduled_pod("False")], soon).is_empty());
    assert_eq!(list_collectors(&plan, &[], late), url);
    assert_eq!(
        list_collectors(&plan, &[collector_pod("new", &json!([]))], late),
        url
    );
    assert!(list_collectors(&plan, &[scheduled_pod("False")], late).is_empty());
}

#[test]
fn stuck_replica_is_not_listed() {
    let plan = [collector_entry("new", None)];
    let waiting = |reason: &str| {
        let mut pod = collector_pod("new", &json!([{"type": "PodScheduled", "status": "True"}]));
        pod.waiting = Some(Box::new((reason.to_owned(), String::new())));
        list_collectors(&plan, &[pod], "2026-01-01T00:00:09Z")
    };
    // The reasons in the contract of the client.
    for reason in [
        "ErrImagePull",
        "ImagePullBackOff",
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "InvalidImageName",
    ] {
        assert!(
            Reason::find_in(&Reason::STUCK_CONTAINER, reason).is_some(),
            "{reason}"
        );
    }
    for reason in Reason::STUCK_CONTAINER {
        assert!(waiting(reason.as_str()).is_empty(), "{reason}");
    }
    for reason in ["ContainerCreating", "PodInitializing"] {
        assert_eq!(waiting(reason), ["new.rl:22270"], "{reason}");
    }
}

#[test]
fn failed_replica_and_replacement_swap_in_one_step() {
    let mut lost = collector_entry("lost", None);
    let ended = |phase: &str| {
        let mut pod = collector_pod("lost", &json!([{"type": "PodScheduled", "status": "True"}]));
        pod.phase = if phase == "Failed" {
            PodPhase::Failed
        } else {
            PodPhase::Succeeded
        };
        pod.end = Some(Box::new(End {
            exit_code: Some((phase == "Failed").into()),
            reason: String::new(),
            message: None,
            at: None,
            log_tail: None,
        }));
        pod
    };
    let at = "2026-01-01T00:00:00Z";
    assert_eq!(
        list_collectors(&[lost.clone()], &[ended("Failed")], at),
        ["lost.rl:22270"]
    );
    let mut evicted = ended("Succeeded");
    evicted.disrupted = true;
    assert_eq!(
        list_collectors(&[lost.clone()], &[evicted], at),
        ["lost.rl:22270"]
    );
    assert!(list_collectors(&[lost.clone()], &[ended("Succeeded")], at).is_empty());
    lost["state"] = json!("Replaced");
    let plan = [lost, collector_entry("fresh", Some("lost"))];
    assert_eq!(
        list_collectors(&plan, &[ended("Failed")], at),
        ["fresh.rl:22270"]
    );
}

#[test]
fn replica_with_rejected_pod_is_not_listed() {
    let (soon, late) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:09Z");
    for (reason, at, wait, listed) in [
        ("QuotaExceeded", late, WAIT, 1),
        ("QuotaExceeded", late, SignedDuration::ZERO, 1),
        // The rejected pod may be another one.
        ("QuotaExceeded", soon, SignedDuration::ZERO, 2),
        ("ApiError", late, WAIT, 2),
    ] {
        let at: Timestamp = at.parse().unwrap();
        let plan = ["there", "rejected"].map(|name| collector_entry(name, None));
        let conditions = json!([{
            "type": "ReplicasReady", "status": "False", "reason": reason, "message": "quota exceeded",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let job = job_with_plan(&plan).status(json!({"conditions": conditions}));
        let job: DIJob = job.build();
        let there = collector_pod(
            "there",
            &json!([{"type": "PodScheduled", "status": "True"}]),
        );
        let pod = |name: &str| (name == "there").then_some(&there);
        let collectors = list_replicas(&job, pod, |_| false, at, wait).collectors;
        assert_eq!(collectors.len(), listed, "{reason}, {at}: {collectors:?}");
    }
}

#[test]
fn listed_group_stays_listed_with_late_ddp_learners() {
    let ddp = json!({
        "name": "d", "type": "DDPLearner", "origin": "Requested", "index": 0, "plannedAt": "2026-01-01T00:00:05Z",
        "resources": {"gpus": "2"}, "ddp": {"aggregator": "a", "worldSize": 2, "startRank": 0},
    });
    let aggregator = json!({
        "name": "a", "type": "Aggregator", "origin": "Requested", "index": 0, "plannedAt": "2026-01-01T00:00:00Z",
        "port": 5000, "resources": {"gpus": "2"},
    });
    let job: DIJob = job_with_plan(&[aggregator, ddp]).build();
    let at = "2026-01-01T00:00:06Z".parse().unwrap();
    let learners = list_replicas(&job, |_| None, |_| false, at, WAIT).learners;
    assert_eq!(learners, ["a.rl:5000"]);
}

#[test]
fn created_replica_is_listed_until_deleted() {
    let mut created = collector_entry("created", None);
    created["uid"] = json!("u");
    let mut late = collector_entry("late", Some("lost"));
    late["uid"] = json!("late");
    late["notBefore"] = json!("2026-01-01T00:05:00Z");
    let job: DIJob = job_with_plan(&[created, late]).build();
    let listed = |at: &str, is_deleted: bool| {
        let at: Timestamp = at.parse().unwrap();
        list_replicas(&job, |_| None, |uid| is_deleted && uid == "u", at, WAIT).collectors
    };
    let (soon, never) = ("2026-01-01T00:00:09Z", "2026-01-01T00:01:30Z");
    assert_eq!(listed(soon, false), ["created.rl:22270"]);
    assert!(listed(soon, true).is_empty());
    assert!(listed(never, false).is_empty());
    assert_eq!(listed("2026-01-01T00:05:09Z", false), ["late.rl:22270"]);
}

#[test]
fn replica_that_waits_for_quota_is_not_listed() {
    let late = "2026-01-01T00:01:00Z";
    let running = collector_pod("new", &json!([{"type": "PodScheduled", "status": "True"}]));
    for (queue, is_listed) in [("Waiting", false), ("Admitted", true)] {
        let mut entry = collector_entry("new", None);
        entry["queue"] = json!(queue);
        let listed = |pods: &[PodView]| {
            !list_collectors(std::slice::from_ref(&entry), pods, late).is_empty()
        };
        assert_eq!(listed(&[]), is_listed, "{queue}");
        // The pod of a preempted replica has not ended yet.
        assert_eq!(listed(std::slice::from_ref(&running)), is_listed, "{queue}");
    }
}

#[test]
fn group_that_waits_for_quota_is_not_listed() {
    let ddp = json!({
        "name": "d", "type": "DDPLearner", "origin": "Requested", "index": 0,
        "resources": {"gpus": "2"}, "ddp": {"aggregator": "a", "worldSize": 2, "startRank": 0},
    });
    let at = "2026-01-01T00:01:00Z".parse().unwrap();
    for (queue, learners, processes) in [("Waiting", 0, 0), ("Admitted", 1, 2)] {
        let aggregator = json!({
            "name": "a", "type": "Aggregator", "origin": "Requested", "index": 0, "port": 5000,
            "resources": {"gpus": "2"}, "queue": queue,
        });
        let job: DIJob = job_with_plan(&[aggregator, ddp.clone()]).build();
        let listing = list_replicas(&job, |_| None, |_| false, at, WAIT);
        assert_eq!(listing.learners.len(), learners, "{queue}");
        let listed = list_processes(&job, "a", |_| None, |_| false, at);
        assert_eq!(listed.len(), processes, "{queue}");
    }
}

#[test]
fn next_change_is_end_of_next_wait() {
    let mut created = collector_entry("created", None);
    created["uid"] = json!("u");
    created["notBefore"] = json!("2026-01-01T00:00:10Z");
    let job: DIJob = job_with_plan(&[created]).build();
    let mut at: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    for seconds in [2, 10, 100] {
        let next = next_change(&job, at, WAIT).unwrap();
        assert_eq!(
            next.to_string(),
            format!("2026-01-01T00:{:02}:{:02}Z", seconds / 60, seconds % 60)
        );
        at = next;
    }
    assert_eq!(next_change(&job, at, WAIT), None);
}

#[test]
fn replacement_is_listed_immediately() {
    let plan = [collector_entry("fresh", Some("lost"))];
    assert_eq!(
        list_collectors(&plan, &[], "2026-01-01T00:00:00Z"),
        ["fresh.rl:22270"]
    );
}

#[test]
fn unit_is_listed_by_its_leader_while_it_is_complete() {
    let unit = |name: &str, place: serde_json::Value| {
        let mut entry = collector_entry(name, Some("old"));
        entry["unit"] = place;
        entry
    };
    let leader = unit("a", json!({"index": 0, "size": 2}));
    let other = unit("b", json!({"leader": "a", "index": 1, "size": 2}));
    let scheduled = json!([{"type": "PodScheduled", "status": "True"}]);
    let pods = ["a", "b"].map(|name| collector_pod(name, &scheduled));
    let (soon, late) = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:59Z");
    let both = [leader, other];
    for at in [soon, late] {
        assert_eq!(list_collectors(&both, &pods, at), ["a.rl:22270"]);
        assert_eq!(list_collectors(&both, &pods[..1], at), [""; 0]);
        assert_eq!(list_collectors(&both, &pods[1..], at), [""; 0]);
        assert_eq!(list_collectors(&both[..1], &pods, at), [""; 0]);
    }
    let mut failed = pods.clone();
    failed[1].phase = PodPhase::Failed;
    assert_eq!(list_collectors(&both, &failed, late), [""; 0]);
}
