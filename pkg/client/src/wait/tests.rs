use serde_json::json;

use super::*;

fn job(status: &Value) -> Job {
    Job::from(json!({
        "metadata": {"name": "j", "generation": 2, "labels": {"example.org/team": "rl"}},
        "spec": {"suspend": false},
        "status": status,
    }))
}

#[test]
fn what_is_waited_for_is_read_as_kubectl_reads_it() {
    let condition = |type_: &str, status: &str| For::Condition(type_.into(), status.into());
    let path = |path: &str, value: Option<&str>| {
        For::JsonPath(Path::parse(path).unwrap(), value.map(str::to_owned))
    };
    for (text, read) in [
        ("delete", For::Delete),
        ("create", For::Create),
        ("phase=Succeeded", For::Phase(Phase::Succeeded)),
        ("phase=running", For::Phase(Phase::Running)),
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
        assert_eq!(For::parse(text), Ok(read), "{text}");
    }
    for (text, told) in [
        ("Running", "unrecognized condition: \"Running\""),
        ("phase=Done", "expected one of Created, Running, Succeeded"),
        ("jsonpath={}", "jsonpath expression cannot be empty"),
        ("jsonpath={.status.phase}=", "has to have a value"),
        ("jsonpath={.status[}", "unterminated array"),
    ] {
        let error = For::parse(text).unwrap_err();
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn what_is_there_is_met() {
    let running = job(&json!({
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
        let outlook = For::parse(wanted).unwrap().look(&running);
        let wanted_outlook = if met { Outlook::Met } else { Outlook::Open };
        assert_eq!(outlook, wanted_outlook, "{wanted}");
    }
}

#[test]
fn a_condition_that_tells_of_an_earlier_spec_says_nothing() {
    let behind = job(&json!({
        "phase": "Running",
        "conditions": [{"type": "Running", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}],
    }));
    let running = For::parse("condition=Running").unwrap();
    assert_eq!(running.look(&behind), Outlook::Open);
}

#[test]
fn how_a_job_ended_never_changes() {
    let failed = job(&json!({
        "phase": "Failed",
        "conditions": [{"type": "Failed", "status": "True", "reason": "CoordinatorFailed", "message": "exit code 1", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }));
    let never = |wanted: &str| For::parse(wanted).unwrap().look(&failed);
    assert_eq!(
        never("phase=Succeeded"),
        Outlook::Never("dijobs/j has ended (Failed: CoordinatorFailed, exit code 1): phase Succeeded can no longer be reached".into())
    );
    assert!(matches!(never("condition=Running"), Outlook::Never(_)));
    assert_eq!(never("condition=Failed"), Outlook::Met);
    assert_eq!(never("condition=Mine"), Outlook::Open);
    assert_eq!(never("delete"), Outlook::Open);
}
