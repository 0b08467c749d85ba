use serde_json::json;

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
    let path = |path: &str, value: Option<&str>| {
        WaitCondition::JsonPath(Path::parse(path).unwrap(), value.map(str::to_owned))
    };
    for (text, read) in [
        ("delete", WaitCondition::Delete),
        ("create", WaitCondition::Create),
        ("phase=Succeeded", WaitCondition::Phase(Phase::Succeeded)),
        ("phase=running", WaitCondition::Phase(Phase::Running)),
        ("condition=Running", condition("Running", "true")),
        ("condition=Running=False", condition("Running", "False")),
        (
            "jsonpath={.status.phase}=Running",
            path(".status.phase", Some("Running")),
        ),
        (
            "jsonpath='{.status.phase}'=\"Running\"",
            path(".status.phase", Some("Running")),
        ),
        (
            "jsonpath=.status.restarts=1",
            path(".status.restarts", Some("1")),
        ),
        (
            "jsonpath={.status.startTime}",
            path(".status.startTime", None),
        ),
        (
            "jsonpath={.status.conditions[?(@.type==\"Running\")].status}=True",
            path(
                ".status.conditions[?(@.type==\"Running\")].status",
                Some("True"),
            ),
        ),
    ] {
        assert_eq!(WaitCondition::parse(text), Ok(read), "{text}");
    }
    for (text, expected) in [
        ("Running", "unrecognized condition: \"Running\""),
        ("phase=Done", "expected one of Created, Running, Succeeded"),
        ("jsonpath={}", "jsonpath expression cannot be empty"),
        ("jsonpath={.status.phase}=", "has to have a value"),
        ("jsonpath={.status[}", "unterminated array"),
    ] {
        let error = WaitCondition::parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn present_values_meet_wait_condition() {
    let running = job(json!({
        "phase": "Running", "restarts": 1, "collectorsReady": null,
        "conditions": [{"type": "Running", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 2}],
    }));
    for (wanted, met) in [
        ("phase=Running", true),
        ("phase=Succeeded", false),
        ("condition=running=TRUE", true),
        ("condition=Running=false", false),
        ("jsonpath={.status.phase}=Running", true),
        ("jsonpath={.status.restarts}=1", true),
        ("jsonpath={.status.restarts}", true),
        ("jsonpath={.status.collectorsReady}", false),
        ("jsonpath={.status.none}", false),
        ("jsonpath={.status.conditions[7].type}", false),
        (r"jsonpath={.metadata.labels.example\.org/team}=rl", true),
        (
            "jsonpath={.status.conditions[?(@.type==\"Running\")].status}=True",
            true,
        ),
        ("create", true),
        ("delete", false),
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
    assert_eq!(check_failed_job("delete"), WaitState::Pending);
}
