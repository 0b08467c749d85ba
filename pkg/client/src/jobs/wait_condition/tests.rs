use di_api::names::kueue::QUEUE_LABEL;
use serde_json::{Value, json};

use super::*;

fn job(status: Value) -> Job {
    let metadata = json!({"generation": 2, "labels": {"example.org/team": "rl"}});
    let job = di_fixtures::Job::test().metadata(metadata).status(status);
    Job::from(job.json())
}

#[test]
fn wait_condition_parses_kubectl_forms() {
    let condition =
        |type_: &str, status: &str| WaitCondition::Condition(type_.into(), status.into());
    for (text, read) in [
        ("phase=Succeeded", WaitCondition::Phase(Phase::Succeeded)),
        ("phase=running", WaitCondition::Phase(Phase::Running)),
        ("condition=Running", condition("Running", "true")),
        ("condition=Running=False", condition("Running", "False")),
        ("admitted", WaitCondition::Admitted),
        ("Admitted", WaitCondition::Admitted),
    ] {
        assert_eq!(WaitCondition::parse(text), Ok(read), "{text}");
    }
    for (text, expected) in [
        ("delete", "unrecognized condition: \"delete\""),
        ("Running", "unrecognized condition: \"Running\""),
        ("phase=Done", "expected one of Created, Running, Succeeded"),
    ] {
        let error = WaitCondition::parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn phase_and_conditions_meet_wait_condition() {
    let running = job(json!({
        "phase": "Running",
        "conditions": [{"type": "Running", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 2}],
    }));
    for (wanted, met) in [
        ("phase=Running", true),
        ("phase=Succeeded", false),
        ("condition=running=TRUE", true),
        ("condition=Running=false", false),
    ] {
        let state = WaitCondition::parse(wanted).unwrap().check_job(&running);
        let expected_state = if met {
            WaitState::Met
        } else {
            WaitState::Pending
        };
        assert_eq!(state, expected_state, "{wanted}");
    }
}

#[test]
fn condition_of_older_generation_is_ignored() {
    let behind = job(json!({
        "phase": "Running",
        "conditions": [{"type": "Running", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}],
    }));
    let running = WaitCondition::parse("condition=Running").unwrap();
    assert_eq!(running.check_job(&behind), WaitState::Pending);
}

#[test]
fn ended_job_cannot_reach_other_phases() {
    let failed = job(json!({
        "phase": "Failed",
        "conditions": [{"type": "Failed", "status": "True", "reason": "CoordinatorFailed", "message": "exit code 1", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }));
    let check_failed_job = |wanted: &str| WaitCondition::parse(wanted).unwrap().check_job(&failed);
    assert_eq!(
        check_failed_job("phase=Succeeded"),
        WaitState::Impossible("dijobs/j has ended (Failed: CoordinatorFailed, exit code 1): phase Succeeded can no longer be reached".into())
    );
    assert!(matches!(
        check_failed_job("condition=Running"),
        WaitState::Impossible(_)
    ));
    assert_eq!(check_failed_job("condition=Failed"), WaitState::Met);
    assert_eq!(check_failed_job("condition=Mine"), WaitState::Pending);
}

/// A job with the phase, in a queue, with the status of the condition `Admitted`.
fn queued_job(phase: &str, in_queue: bool, admitted: Option<(&str, i64)>) -> Job {
    let condition = |(status, generation): (&str, i64)| {
        json!({
            "type": "Admitted", "status": status, "reason": "QueueWaiting", "message": "no quota",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": generation,
        })
    };
    let conditions: Vec<_> = admitted.into_iter().map(condition).collect();
    let mut job = job(json!({"phase": phase, "reason": "QueueWaiting", "conditions": conditions}));
    if in_queue {
        let labels = job.metadata.labels.get_or_insert_default();
        labels.insert(QUEUE_LABEL.to_owned(), "team-a".to_owned());
    }
    job
}

#[test]
fn admitted_needs_the_condition_unless_job_has_no_queue() {
    for (phase, in_queue, admitted, met) in [
        ("Queued", true, Some(("False", 2)), false),
        ("Created", true, Some(("True", 2)), true),
        // Of an older generation.
        ("Created", true, Some(("True", 1)), false),
        ("Running", true, None, false),
        ("Running", false, None, true),
        // The label was removed, and the orchestrator has not noticed.
        ("Queued", false, Some(("False", 1)), false),
        // The generation of an ended job does not matter.
        ("Succeeded", true, Some(("True", 1)), true),
    ] {
        let job = queued_job(phase, in_queue, admitted);
        let expected = if met {
            WaitState::Met
        } else {
            WaitState::Pending
        };
        let state = WaitCondition::Admitted.check_job(&job);
        assert_eq!(state, expected, "{phase} {in_queue} {admitted:?}");
    }
    let unknown = job(json!({}));
    assert_eq!(
        WaitCondition::Admitted.check_job(&unknown),
        WaitState::Pending
    );
    let ended = queued_job("Failed", true, Some(("False", 2)));
    assert_eq!(
        WaitCondition::Admitted.check_job(&ended),
        WaitState::Impossible(
            "dijobs/j has ended (Failed): admission can no longer be reached".into()
        )
    );
}

#[test]
fn problem_of_queued_job_has_the_message_of_its_admission() {
    let job = queued_job("Queued", true, Some(("False", 2)));
    assert_eq!(
        job.problem_summary().as_deref(),
        Some("QueueWaiting: no quota")
    );
}
