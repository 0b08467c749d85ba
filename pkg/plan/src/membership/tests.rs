use di_api::{DIJob, EntryState};
use di_fixtures::{Job, Pod};
use serde_json::{Value, json};

use super::*;
use crate::{names::RandomSuffixes, ops::replace};

fn entry(name: &str, fields: &Value) -> PlanEntry {
    let mut entry = json!({"name": name, "type": "Collector", "origin": "Requested", "index": 0});
    let fields = fields.as_object().unwrap().clone();
    entry.as_object_mut().unwrap().extend(fields);
    serde_json::from_value(entry).unwrap()
}

fn job(list_when: &str) -> DIJob {
    let mut job = Job::test().collectors(0).learners(0).json();
    for role in ["collector", "learner"] {
        job["spec"][role]["listWhen"] = list_when.into();
    }
    serde_json::from_value(job).unwrap()
}

/// A pod of a collector with these conditions that are true.
fn pod(name: &str, conditions: &[&str]) -> PodView {
    let conditions = conditions.iter();
    let conditions = conditions.map(|type_| json!({"type": type_, "status": "True"}));
    let status = json!({"conditions": conditions.collect::<Vec<_>>()});
    PodView::new(&Pod::test(name, "collector").status(status).build()).unwrap()
}

fn listed_after(job: &DIJob, plan: &[PlanEntry], pods: &[PodView]) -> Vec<String> {
    let mut plan = plan.to_vec();
    record_members(job, &mut plan, |name| {
        pods.iter().find(|pod| pod.name == name)
    });
    let listed = plan.into_iter().filter(|entry| entry.listed);
    listed.map(|entry| entry.name).collect()
}

#[test]
fn replica_is_listed_by_its_pod_and_list_when() {
    let with = |conditions: &[&str]| Some(pod("a", conditions));
    let deleting = || {
        let mut pod = pod("a", &["PodScheduled", "Ready"]);
        pod.deleting = true;
        Some(pod)
    };
    let stuck = || {
        let mut pod = pod("a", &["PodScheduled"]);
        pod.waiting = Some(Box::new(("ErrImagePull".to_owned(), String::new())));
        Some(pod)
    };
    // For each pod: whether a new and a listed replica are listed, with Scheduled and with Ready.
    for (pod, scheduled, ready) in [
        (None, [false, true], [false, false]),
        (with(&[]), [false, true], [false, false]),
        (with(&["PodScheduled"]), [true, true], [false, false]),
        (with(&["PodScheduled", "Ready"]), [true, true], [true, true]),
        (deleting(), [false, false], [false, false]),
        (stuck(), [false, false], [false, false]),
    ] {
        let pods: Vec<_> = pod.into_iter().collect();
        for (list_when, expected) in [("Scheduled", scheduled), ("Ready", ready)] {
            let found = [false, true].map(|is_listed| {
                let plan = [entry("a", &json!({"listed": is_listed}))];
                !listed_after(&job(list_when), &plan, &pods).is_empty()
            });
            assert_eq!(found, expected, "{list_when}: {pods:?}");
        }
    }
}

#[test]
fn done_waiting_or_unwanted_replica_is_not_listed() {
    let pods = [pod("a", &["PodScheduled", "Ready"])];
    for (fields, is_listed) in [
        (json!({}), true),
        (json!({"queue": "Admitted"}), true),
        (json!({"queue": "Waiting"}), false),
        (json!({"done": true}), false),
        (json!({"state": "Removing"}), false),
        (json!({"state": "Replaced"}), false),
    ] {
        let plan = [entry("a", &fields)];
        let listed = listed_after(&job("Scheduled"), &plan, &pods);
        assert_eq!(!listed.is_empty(), is_listed, "{fields}");
    }
}

#[test]
fn learner_group_is_listed_with_all_its_pods() {
    let ddp = |name: &str, rank: i32| {
        let place = json!({"aggregator": "a", "worldSize": 2, "startRank": rank});
        entry(
            name,
            &json!({"type": "DDPLearner", "resources": {"gpus": "1"}, "ddp": place}),
        )
    };
    let aggregator = |is_listed: bool| {
        let fields = json!({"type": "Aggregator", "port": 5000, "listed": is_listed});
        entry("a", &fields)
    };
    let group = [aggregator(false), ddp("d", 0), ddp("e", 1)];
    let scheduled = |name: &str| pod(name, &["PodScheduled"]);
    let ready = |name: &str| pod(name, &["PodScheduled", "Ready"]);
    let listed =
        |list_when, plan: &[PlanEntry], pods: &[PodView]| listed_after(&job(list_when), plan, pods);
    let all = ["a", "d", "e"].map(scheduled);
    assert_eq!(listed("Scheduled", &group, &all), ["a"]);
    assert!(listed("Scheduled", &group, &all[..2]).is_empty());
    assert!(
        listed("Scheduled", &group[..2], &all).is_empty(),
        "incomplete"
    );
    assert_eq!(listed("Scheduled", &[aggregator(true)], &[]), ["a"]);
    assert_eq!(listed("Ready", &group, &["a", "d", "e"].map(ready)), ["a"]);
    let one_is_not_ready = [ready("a"), ready("d"), scheduled("e")];
    assert!(listed("Ready", &group, &one_is_not_ready).is_empty());
}

#[test]
fn replacement_takes_place_of_listed_replica() {
    for (list_when, attempt, is_listed) in [
        ("Scheduled", 0, true),
        ("Scheduled", 1, false),
        ("Ready", 0, false),
    ] {
        let mut plan = vec![entry("a", &json!({"listed": true, "attempt": attempt}))];
        let before = plan.clone();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let fresh = replace(
            &job(list_when),
            &mut plan,
            "a",
            None,
            &mut RandomSuffixes,
            now,
        );
        assert_eq!(next_generation(&before, &mut plan, 7), 8);
        let listed = plan.iter().filter(|entry| entry.listed);
        let listed: Vec<_> = listed.map(|entry| entry.name.clone()).collect();
        let expected: Vec<_> = fresh.into_iter().filter(|_| is_listed).collect();
        assert_eq!(listed, expected, "{list_when}, attempt {attempt}");
    }
}

#[test]
fn generation_counts_changes_of_the_set() {
    let listed = |names: &[&str]| -> Vec<PlanEntry> {
        let entries = names.iter();
        let entries = entries.map(|name| entry(name, &json!({"listed": true})));
        entries.collect()
    };
    for (before, after, generation) in [
        (vec![], vec![], 7),
        (vec!["a"], vec!["a"], 7),
        (vec!["a", "b"], vec!["b", "a"], 7),
        (vec![], vec!["a", "b"], 8),
        (vec!["a"], vec!["b"], 8),
        (vec!["a"], vec![], 8),
    ] {
        let mut plan = listed(&after);
        // A new replica that is not listed does not count.
        plan.push(entry("new", &json!({})));
        let found = next_generation(&listed(&before), &mut plan, 7);
        assert_eq!(found, generation, "{before:?}, {after:?}");
    }
    let mut removed = listed(&["a"]);
    removed[0].state = EntryState::Removing;
    assert_eq!(next_generation(&listed(&["a"]), &mut removed, 7), 8);
    assert!(!removed[0].listed);
}

#[test]
fn members_are_listed_with_the_ports_of_their_pods() {
    let plan = json!([
        {"name": "a", "type": "Collector", "origin": "Requested", "index": 0, "listed": true},
        {"name": "b", "type": "Collector", "origin": "Requested", "index": 1},
        {"name": "c", "type": "Aggregator", "origin": "Requested", "index": 0, "listed": true, "port": 5000},
        {"name": "d", "type": "Learner", "origin": "Requested", "index": 0, "listed": true},
    ]);
    let job: DIJob = Job::test()
        .collectors(0)
        .learners(0)
        .status(json!({"plan": plan}))
        .build();
    let mut own = pod("a", &[]);
    own.port = 4000;
    let members = list_members(&job, |name| (name == "a").then_some(&own));
    assert_eq!(members.collectors, ["a.rl:4000"]);
    assert_eq!(members.learners, ["d.rl:22271", "c.rl:5000"]);
}

/// A unit of two pods, of which the leader is `a`.
fn unit() -> [PlanEntry; 2] {
    [
        entry("a", &json!({"unit": {"index": 0, "size": 2}})),
        entry(
            "b",
            &json!({"unit": {"leader": "a", "index": 1, "size": 2}}),
        ),
    ]
}

#[test]
fn unit_is_listed_while_all_its_pods_run() {
    let ready = ["PodScheduled", "Ready"];
    let mut ended = pod("b", &ready);
    ended.phase = crate::PodPhase::Failed;
    let mut deleted = pod("b", &ready);
    deleted.deleting = true;
    for (second, scheduled, all_ready) in [
        (None, false, false),
        (Some(pod("b", &[])), false, false),
        (Some(pod("b", &["PodScheduled"])), true, false),
        (Some(pod("b", &ready)), true, true),
        (Some(ended), false, false),
        (Some(deleted), false, false),
    ] {
        let pods: Vec<_> = [Some(pod("a", &ready)), second.clone()]
            .into_iter()
            .flatten()
            .collect();
        for (list_when, is_listed) in [("Scheduled", scheduled), ("Ready", all_ready)] {
            let expected = if is_listed { &["a"][..] } else { &[] };
            for was_listed in [false, true] {
                let mut plan = unit();
                plan[0].listed = was_listed;
                let listed = listed_after(&job(list_when), &plan, &pods);
                assert_eq!(listed, expected, "{second:?} {list_when}");
            }
        }
    }
}

#[test]
fn unit_without_all_entries_is_not_listed() {
    let pods = ["a", "b"].map(|name| pod(name, &["PodScheduled", "Ready"]));
    let mut plan = unit();
    assert_eq!(listed_after(&job("Scheduled"), &plan, &pods), ["a"]);
    plan[1].state = EntryState::Replaced;
    assert_eq!(listed_after(&job("Scheduled"), &plan, &pods), [""; 0]);
    assert_eq!(listed_after(&job("Scheduled"), &plan[..1], &pods), [""; 0]);
}

#[test]
fn replacement_of_unit_is_not_listed_at_once() {
    let mut plan = unit().to_vec();
    plan[0].listed = true;
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    replace(
        &job("Scheduled"),
        &mut plan,
        "b",
        None,
        &mut RandomSuffixes,
        now,
    );
    let before = plan.clone();
    assert_eq!(next_generation(&before, &mut plan, 7), 8);
    assert!(plan.iter().all(|entry| !entry.listed));
}
