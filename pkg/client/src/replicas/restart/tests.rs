use serde_json::{Value, json};

use super::*;

fn job(status: Value) -> Job {
    let job = di_fixtures::Job::test().metadata(json!({"generation": 2}));
    Job::from(job.status(status).json())
}

fn pod(name: &str, role: &str, phase: &str) -> Pod {
    di_fixtures::Pod::test(name, role).phase(phase).build()
}

fn job_with_pods() -> (Job, Vec<Pod>) {
    let job = job(json!({"phase": "Running", "plan": [
        {"name": "b", "type": "Collector", "origin": "Declared", "index": 3},
        {"name": "c", "type": "Collector", "origin": "Declared", "index": 0},
        {"name": "done", "type": "Collector", "origin": "Declared", "index": 1},
        {"name": "old", "type": "Collector", "origin": "Declared", "index": 2, "state": "Replaced"},
        {"name": "new", "type": "Collector", "origin": "Declared", "index": 2, "replaces": "old"},
        {"name": "a", "type": "Aggregator", "origin": "Declared", "index": 0},
        {"name": "d", "type": "DDPLearner", "origin": "Declared", "index": 0, "ddp": {"aggregator": "a", "worldSize": 2, "startRank": 0}},
    ]}));
    let pods = vec![
        pod("b", "collector", "Pending"),
        pod("c", "collector", "Running"),
        pod("done", "collector", "Succeeded"),
        pod("old", "collector", "Failed"),
        pod("a", "aggregator", "Running"),
        pod("d", "ddp-learner", "Running"),
    ];
    (job, pods)
}

fn selected_names(which: &RestartSelection) -> Result<Vec<String>, String> {
    let (job, pods) = job_with_pods();
    let chosen = select_replicas(&job, &pods, which)?;
    Ok(chosen.into_iter().map(|pod| pod.name).collect())
}

fn named(names: &[&str]) -> RestartSelection {
    RestartSelection::Named(names.iter().map(|&name| name.to_owned()).collect())
}

#[test]
fn learner_group_lists_its_other_pods() {
    let (job, pods) = job_with_pods();
    for (name, with_it) in [("a", &["d"][..]), ("b", &[])] {
        let chosen = select_replicas(&job, &pods, &named(&[name])).unwrap();
        assert_eq!(chosen.len(), 1, "{name}");
        assert_eq!(chosen[0].others, with_it, "{name}");
    }
}

#[test]
fn restart_by_count_takes_one_pod_of_a_group() {
    let select_counts = |collectors, learners| {
        selected_names(&RestartSelection::ByRole(Counts {
            collectors,
            learners,
        }))
    };
    let (none, all, first) = (RestartCount::None, RestartCount::All, RestartCount::First);
    assert_eq!(select_counts(all, none).unwrap(), ["b", "c"]);
    assert_eq!(select_counts(none, all).unwrap(), ["a"]);
    assert_eq!(select_counts(all, all).unwrap(), ["a", "b", "c"]);
    // The pending pod precedes the ready pod in scale-down order.
    assert_eq!(select_counts(first(1), none).unwrap(), ["b"]);
    assert_eq!(select_counts(first(2), first(1)).unwrap(), ["a", "b", "c"]);
    assert_eq!(
        select_counts(first(3), none).unwrap_err(),
        "cannot restart 3 collectors of job \"j\": only 2 have a pod that can be restarted"
    );
}

#[test]
fn restart_by_name_finds_group_or_explains_error() {
    assert_eq!(
        selected_names(&named(&["d", "pod/a", "c"])).unwrap(),
        ["a", "c"]
    );
    assert_eq!(
        selected_names(&named(&["done"])).unwrap(),
        ["done"],
        "restart by name ignores the phase"
    );
    for (name, expected) in [
        ("new", "replica new has no pod yet; nothing was changed"),
        ("old", "replica old has been replaced by new"),
        (
            "j-coordinator",
            "j-coordinator is the coordinator; to restart it: kubectl di restart j",
        ),
        ("x", "job \"j\" has no replica \"x\""),
    ] {
        assert_eq!(selected_names(&named(&[name])).unwrap_err(), expected);
    }
}

#[test]
fn replicas_ready_state_needs_new_pods() {
    let status = |uid: &str, observed: i64, ready: &str| {
        job(json!({
            "phase": "Running", "observedGeneration": observed,
            "plan": [{"name": "c", "type": "Collector", "origin": "Declared", "index": 0, "uid": uid}],
            "conditions": [{"type": "ReplicasReady", "status": ready, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }))
    };
    let old = [RestartedPod {
        name: "c".into(),
        uid: "old".into(),
        role: Role::Collector,
        others: Vec::new(),
    }];
    let state = |job: &Job| replicas_ready_state(job, Some(2), &old);
    assert_eq!(state(&status("new", 2, "True")), WaitState::Met);
    assert_eq!(state(&status("old", 2, "True")), WaitState::Pending);
    assert_eq!(state(&status("new", 1, "True")), WaitState::Pending);
    assert_eq!(state(&status("new", 2, "False")), WaitState::Pending);
    let ended = job(json!({"phase": "Succeeded"}));
    assert_eq!(
        state(&ended),
        WaitState::Impossible("dijobs/j ended (Succeeded) before its replicas were ready".into())
    );
}

#[test]
fn progress_counts_come_from_status() {
    let both = job(json!({"collectorsReady": "2/4", "learnersReady": "1/1"}));
    assert_eq!(
        Progress::of_job(&both),
        Progress {
            ready: 3,
            wanted: 5
        }
    );
    let done = Progress::of_job(&job(json!({"collectorsReady": "2/12 (10 done)"})));
    assert_eq!((done.ready, done.wanted), (12, 12));
    assert_eq!(Progress::of_job(&job(json!({}))), Progress::default());
}

#[test]
fn removing_replicas_are_listed_until_dropped() {
    let job = job(json!({"plan": [
        {"name": "c", "type": "Collector", "origin": "Declared", "index": 0},
        {"name": "r", "type": "Collector", "origin": "Declared", "index": 1, "state": "Removing"},
        {"name": "o", "type": "Collector", "origin": "Declared", "index": 0, "state": "Replaced"},
    ]}));
    assert_eq!(removing_replicas(&job).collect::<Vec<_>>(), ["r"]);
}
