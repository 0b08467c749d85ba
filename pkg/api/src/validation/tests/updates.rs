use super::*;

const STARTED: &str = "Forbidden: may not be changed once the job has started; suspend the job and wait for phase Suspended, or create a new job";
const ENDED: &str = "Forbidden: may not be changed once the job has ended (only replicas, suspend and ttlSecondsAfterFinished may); create a new job instead";

fn job_with_status(status: Value) -> Value {
    let mut job = valid_job();
    set(&mut job, "/spec/learner", json!({"template": template()}));
    set(&mut job, "/status", status);
    job
}

/// Changes: path, value, reported field, allowed after the start, allowed after the end.
fn change_table() -> Vec<(&'static str, Value, &'static str, bool, bool)> {
    let other = template();
    let mut other = json!({"metadata": {"labels": {"a": "b"}}, "spec": other["spec"]});
    other["spec"]["containers"][0]["image"] = json!("other");
    vec![
        (
            "/spec/coordinator/template",
            other.clone(),
            "spec.coordinator.template",
            false,
            false,
        ),
        (
            "/spec/collector/template",
            other.clone(),
            "spec.collector.template",
            false,
            false,
        ),
        (
            "/spec/learner/template",
            other,
            "spec.learner.template",
            false,
            false,
        ),
        (
            "/spec/learner",
            json!(null),
            "spec.learner.template",
            false,
            false,
        ),
        (
            "/spec/collector/unit",
            json!({"size": 2}),
            "spec.collector.unit",
            false,
            false,
        ),
        (
            "/spec/volumes",
            json!([{"name": "v"}]),
            "spec.volumes",
            false,
            false,
        ),
        (
            "/spec/priorityClassName",
            json!("high"),
            "spec.priorityClassName",
            false,
            false,
        ),
        ("/spec/group", json!("g"), "spec.group", false, false),
        (
            "/spec/collector/replicas",
            json!(7),
            "spec.collector.replicas",
            true,
            true,
        ),
        (
            "/spec/collector/groups",
            json!([{"name": "g"}]),
            "spec.collector.groups",
            true,
            false,
        ),
        ("/spec/suspend", json!(true), "spec.suspend", true, true),
        (
            "/spec/activeDeadlineSeconds",
            json!(60),
            "spec.activeDeadlineSeconds",
            true,
            false,
        ),
        (
            "/spec/cleanPodPolicy",
            json!("All"),
            "spec.cleanPodPolicy",
            true,
            false,
        ),
        (
            "/spec/backoffLimit",
            json!(3),
            "spec.backoffLimit",
            true,
            false,
        ),
        (
            "/spec/ttlSecondsAfterFinished",
            json!(3),
            "spec.ttlSecondsAfterFinished",
            true,
            true,
        ),
        ("/metadata/labels", json!({"a": "b"}), "", true, true),
    ]
}

#[test]
fn allowed_changes_depend_on_phase() {
    let plan = json!([
        {"name": "cartpole-collector-x7k2p", "type": "Collector", "origin": "Declared", "index": 0},
    ]);
    for (path, value, field, started, ended) in change_table() {
        for (status, allowed, why) in [
            (json!(null), true, ""),
            (json!({}), true, ""),
            (json!({"plan": []}), true, ""),
            (json!({"plan": plan}), started, STARTED),
            (json!({"phase": "Suspended", "plan": plan}), true, ""),
            (json!({"phase": "Created"}), started, STARTED),
            (
                json!({"startTime": "2026-01-02T03:04:05Z"}),
                started,
                STARTED,
            ),
            (json!({"phase": "Running"}), started, STARTED),
            (json!({"phase": "Unknown"}), started, STARTED),
            (json!({"phase": "Suspended"}), true, ""),
            (json!({"phase": "Queued", "plan": plan}), true, ""),
            (
                json!({"phase": "Queued", "queueing": {"workload": "dijob-cartpole-00000"}}),
                started,
                STARTED,
            ),
            (json!({"phase": "Succeeded"}), ended, ENDED),
            (json!({"phase": "Failed"}), ended, ENDED),
        ] {
            let old = job_with_status(status.clone());
            let mut new = old.clone();
            set(&mut new, path, value.clone());
            match validate_dijob_update(&old, &new) {
                Ok(_) => assert!(allowed, "{path} at {status}"),
                Err(faults) => {
                    assert!(
                        !allowed,
                        "{path} at {status}: {}",
                        summarize_faults(&faults)
                    );
                    let expected = format!("{field}: {why}");
                    assert!(
                        faults.iter().any(|f| f.to_string() == expected),
                        "{faults:?}"
                    );
                    assert!(faults.iter().all(|f| f.kind == FaultKind::Forbidden));
                }
            }
        }
    }
}

#[test]
fn queue_labels_are_immutable_while_job_is_admitted() {
    let admitted = "Forbidden: may not be changed once the job has been admitted; suspend the job and wait for phase Suspended";
    let labels = |key: &str, value: Option<&str>| match value {
        Some(value) => json!({"team": "rl", key: value}),
        None => json!({"team": "rl"}),
    };
    let changes = [(None, Some("a")), (Some("a"), Some("b")), (Some("a"), None)];
    for key in ["kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"] {
        for (status, allowed) in [
            (json!({}), true),
            (json!({"phase": "Queued"}), true),
            (json!({"phase": "Suspended"}), true),
            (json!({"phase": "Created"}), false),
            (json!({"phase": "Running"}), false),
            (json!({"phase": "Unknown"}), false),
            (json!({"phase": "Succeeded"}), true),
            (json!({"phase": "Failed"}), true),
        ] {
            for ((before, after), replicas) in changes.iter().zip([0, 0, 1]) {
                let mut old = job_with_status(status.clone());
                set(&mut old, "/metadata/labels", labels(key, *before));
                let mut new = old.clone();
                set(&mut new, "/metadata/labels", labels(key, *after));
                // With and without a change of the spec.
                set(&mut new, "/spec/collector/replicas", json!(2 + replicas));
                let faults = validate_dijob_update(&old, &new).err();
                let message = faults.map(|faults| summarize_faults(&faults));
                let expected = format!("metadata.labels[{key}]: {admitted}");
                let expected = (!allowed).then_some(expected);
                assert_eq!(message, expected, "{status}: {before:?} to {after:?}");
            }
        }
    }
}

#[test]
fn new_queue_labels_are_validated() {
    let mut old = job_with_status(json!({"phase": "Queued"}));
    let invalid = json!({"kueue.x-k8s.io/queue-name": "Team_A"});
    let mut new = old.clone();
    set(&mut new, "/metadata/labels", invalid.clone());
    let faults = validate_dijob_update(&old, &new).unwrap_err();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!(
        faults[0].field,
        "metadata.labels[kueue.x-k8s.io/queue-name]"
    );
    // Existing ones do not block other changes of the metadata.
    set(&mut old, "/metadata/labels", invalid);
    set(&mut new, "/metadata/finalizers", json!(["a/b"]));
    assert!(validate_dijob_update(&old, &new).is_ok());
}

#[test]
fn same_manifest_of_ended_job_may_reset_lowered_counts() {
    let group = |replicas: i32, cpus: &str| {
        let resources = json!({"cpus": cpus});
        json!([{"name": "g", "replicas": replicas, "resources": resources}])
    };
    for phase in ["Succeeded", "Failed"] {
        let mut manifest = job_with_status(json!({"phase": phase}));
        set(&mut manifest, "/spec/collector/groups", group(2, "1"));
        let mut live = manifest.clone();
        set(&mut live, "/spec/collector/replicas", json!(1));
        set(&mut live, "/spec/collector/groups", group(1, "1"));
        set(&mut live, "/spec/learner/replicas", json!(3));
        set(&mut live, "/spec/suspend", json!(true));
        assert!(validate_dijob_update(&live, &manifest).is_ok(), "{phase}");

        let mut other = manifest.clone();
        set(&mut other, "/spec/collector/groups", group(2, "2"));
        let faults = validate_dijob_update(&live, &other).unwrap_err();
        assert_eq!(
            summarize_faults(&faults),
            format!("spec.collector.groups: {ENDED}"),
            "other fields of a group are immutable"
        );
        set(&mut manifest, "/spec/collector/replicas", json!(-1));
        assert!(validate_dijob_update(&live, &manifest).is_err(), "{phase}");
    }
}

#[test]
fn defaulting_does_not_change_spec() {
    let status = json!({"phase": "Succeeded", "startTime": "2026-01-02T03:04:05Z"});
    let old = job_with_status(status);
    for (path, value) in [
        ("/spec/cleanPodPolicy", json!("")),
        ("/spec/cleanPodPolicy", json!("Running")),
        ("/spec/suspend", json!(false)),
        ("/spec/backoffLimit", json!(0)),
        ("/spec/group", json!("")),
        ("/spec/volumes", json!([])),
        ("/spec/learner/replicas", json!(0)),
        ("/spec/learner/groups", json!([])),
        ("/spec/ttlSecondsAfterFinished", json!(null)),
        (
            "/spec/coordinator/template/metadata",
            json!({"creationTimestamp": null}),
        ),
        ("/spec/coordinator/template/spec/volumes", json!([])),
        ("/spec/coordinator/template/spec/securityContext", json!({})),
    ] {
        let mut new = old.clone();
        set(&mut new, path, value.clone());
        assert!(
            is_spec_unchanged(&old, &new) && is_spec_unchanged(&new, &old),
            "{path}"
        );
        assert!(
            validate_dijob_update(&old, &new).is_ok() && validate_dijob_update(&new, &old).is_ok()
        );
    }
    let mut number = old.clone();
    let resources = "/spec/coordinator/template/spec/resources";
    set(&mut number, resources, json!({"limits": {"cpu": 3}}));
    let mut text = old;
    set(&mut text, resources, json!({"limits": {"cpu": "3"}}));
    assert!(is_spec_unchanged(&number, &text));
}

#[test]
fn unchanged_invalid_spec_is_allowed() {
    let mut old = valid_job();
    set(&mut old, "/spec/backoffLimit", json!(-1));
    set(&mut old, "/spec/unheardOf", json!(1));
    let mut new = old.clone();
    set(&mut new, "/metadata/finalizers", json!(["a/b"]));
    set(&mut new, "/status", json!({"phase": "Failed"}));
    assert!(validate_dijob_update(&old, &new).is_ok());
    set(&mut new, "/spec/unheardToo", json!(1));
    assert_eq!(validate_dijob_update(&old, &new).unwrap_err().len(), 3);
    set(
        &mut old,
        "/spec",
        json!({"coordinator": {"template": {"spec": 3}}}),
    );
    assert!(is_spec_unchanged(&old, &old.clone()));
}

#[test]
fn existing_faults_do_not_block_other_changes() {
    let bad = |status: Value| {
        let mut job = job_with_status(status);
        set(
            &mut job,
            "/spec/coordinator/template/spec/containers",
            json!([{"name": "di-container"}]),
        );
        job
    };
    for (status, allowed) in [(json!(null), false), (json!({"phase": "Running"}), true)] {
        let old = bad(status);
        let mut new = old.clone();
        set(&mut new, "/spec/collector/replicas", json!(0));
        assert_eq!(validate_dijob_update(&old, &new).is_ok(), allowed);
        set(&mut new, "/spec/collector/replicas", json!(-1));
        let fields: Vec<_> = validate_dijob_update(&old, &new)
            .unwrap_err()
            .into_iter()
            .map(|f| f.field)
            .collect();
        assert!(
            fields.contains(&"spec.collector.replicas".to_owned()),
            "{fields:?}"
        );
    }
}
