use serde_json::{Value, json};

use super::*;

fn job(status: &Value) -> Job {
    Job::from(
        json!({"metadata": {"name": "j", "uid": "u", "generation": 2}, "spec": {}, "status": status}),
    )
}

fn pod(name: &str, role: &str, phase: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": format!("{name}-uid"), "labels": {"replica-type": role, "dijob-name": "j"}},
        "status": {"phase": phase, "conditions": [
            {"type": "Ready", "status": if phase == "Running" { "True" } else { "False" }},
        ]},
    }))
    .unwrap()
}

fn fleet() -> (Job, Vec<Pod>) {
    let job = job(&json!({"phase": "Running", "plan": [
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

fn chosen(which: &WhichReplicas) -> Result<Vec<String>, String> {
    let (job, pods) = fleet();
    let chosen = choose(&job, &pods, which)?;
    Ok(chosen.into_iter().map(|pod| pod.name).collect())
}

fn named(names: &[&str]) -> WhichReplicas {
    WhichReplicas::Named(names.iter().map(|&name| name.to_owned()).collect())
}

#[test]
fn who_goes_with_a_logic_learner_is_told() {
    let (job, pods) = fleet();
    for (name, with_it) in [("a", &["d"][..]), ("b", &[])] {
        let chosen = choose(&job, &pods, &named(&[name])).unwrap();
        assert_eq!(chosen.len(), 1, "{name}");
        assert_eq!(chosen[0].others, with_it, "{name}");
    }
}

#[test]
fn units_go_by_one_pod_and_what_is_done_stays() {
    let of = |collectors, learners| {
        chosen(&WhichReplicas::Of(Counts {
            collectors,
            learners,
        }))
    };
    let (none, all, first) = (HowMany::None, HowMany::All, HowMany::First);
    assert_eq!(of(all, none).unwrap(), ["b", "c"]);
    assert_eq!(of(none, all).unwrap(), ["a"]);
    assert_eq!(of(all, all).unwrap(), ["a", "b", "c"]);
    // The newer one is ready, and the other would go first.
    assert_eq!(of(first(1), none).unwrap(), ["b"]);
    assert_eq!(of(first(2), first(1)).unwrap(), ["a", "b", "c"]);
    assert_eq!(
        of(first(3), none).unwrap_err(),
        "cannot restart 3 collectors of job \"j\": 2 have a pod that could be replaced"
    );
}

#[test]
fn names_lead_to_their_unit_or_are_told_of() {
    assert_eq!(chosen(&named(&["d", "pod/a", "c"])).unwrap(), ["a", "c"]);
    assert_eq!(
        chosen(&named(&["done"])).unwrap(),
        ["done"],
        "if one insists"
    );
    for (name, told) in [
        ("new", "new has no pod yet; nothing was changed"),
        ("old", "old has been replaced by new"),
        (
            "j-coordinator",
            "j-coordinator is the coordinator; kubectl di restart j",
        ),
        ("x", "job \"j\" has no replica \"x\""),
    ] {
        assert_eq!(chosen(&named(&[name])).unwrap_err(), told);
    }
}

#[test]
fn replicas_are_ready_once_others_are() {
    let status = |uid: &str, observed: i64, ready: &str| {
        job(&json!({
            "phase": "Running", "observedGeneration": observed,
            "plan": [{"name": "c", "type": "Collector", "origin": "Declared", "index": 0, "uid": uid}],
            "conditions": [{"type": "ReplicasReady", "status": ready, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }))
    };
    let old = [Restarted {
        name: "c".into(),
        uid: "old".into(),
        role: Role::Collector,
        others: Vec::new(),
    }];
    let outlook = |job: &Job| replicas_are_ready(job, Some(2), &old);
    assert_eq!(outlook(&status("new", 2, "True")), Outlook::Met);
    assert_eq!(outlook(&status("old", 2, "True")), Outlook::Open);
    assert_eq!(outlook(&status("new", 1, "True")), Outlook::Open);
    assert_eq!(outlook(&status("new", 2, "False")), Outlook::Open);
    let ended = job(&json!({"phase": "Succeeded"}));
    assert_eq!(
        outlook(&ended),
        Outlook::Never("dijobs/j ended (Succeeded) before its replicas were ready".into())
    );
}

#[test]
fn progress_is_what_the_status_counts() {
    let both = job(&json!({"collectorsReady": "2/4", "learnersReady": "1/1"}));
    assert_eq!(
        Progress::of(&both),
        Progress {
            ready: 3,
            wanted: 5
        }
    );
    assert_eq!(Progress::of(&job(&json!({}))), Progress::default());
}

#[test]
fn those_that_were_let_go_of_are_leaving_until_the_plan_drops_them() {
    let job = job(&json!({"plan": [
        {"name": "c", "type": "Collector", "origin": "Declared", "index": 0},
        {"name": "r", "type": "Collector", "origin": "Declared", "index": 1, "state": "Removing"},
        {"name": "o", "type": "Collector", "origin": "Declared", "index": 0, "state": "Replaced"},
    ]}));
    assert_eq!(leaving(&job).collect::<Vec<_>>(), ["r"]);
}
