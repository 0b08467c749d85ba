//! The validator finds every mistake of the table with the expected message, and accepts valid
//! jobs.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod table;

use std::collections::BTreeSet;

use di_api::{
    default_patch,
    validation::{
        Fault, FaultKind, Valid, job_warnings, summarize_faults, validate_aggregator_config,
        validate_dijob,
    },
};
use serde_json::{Value, json};
use table::{config, good, job, mistakes, set};

fn faults(object: &Value) -> Vec<Fault> {
    let result = match object["kind"].as_str().unwrap() {
        "DIJob" => validate_dijob(object)
            .and_then(Valid::without_unknown_fields)
            .map(drop),
        _ => validate_aggregator_config(object)
            .and_then(Valid::without_unknown_fields)
            .map(drop),
    };
    result.err().unwrap_or_default()
}

#[test]
fn mistakes_of_table_give_expected_messages() {
    let table = mistakes();
    let places: BTreeSet<_> = table.iter().map(|m| m.object.to_string()).collect();
    assert_eq!(places.len(), table.len(), "a mistake is in the table twice");
    assert!(table.len() >= 100, "{}", table.len());
    let mut wrong = Vec::new();
    for mistake in &table {
        let found: Vec<_> = faults(&mistake.object)
            .iter()
            .map(ToString::to_string)
            .collect();
        if found != mistake.faults || found.is_empty() {
            wrong.push(format!("{} = {}\n  {found:#?}", mistake.at, mistake.value));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether a path exists in a value. Names may contain dots.
fn path_exists(value: &Value, path: &str) -> bool {
    if path.is_empty() {
        return true;
    }
    let below = |place: String, child| {
        let rest = path.strip_prefix(place.as_str());
        rest.is_some_and(|rest| path_exists(child, rest))
    };
    match value {
        Value::Object(fields) => fields.iter().any(|(name, child)| {
            below(format!(".{name}"), child) || below(format!("[{name}]"), child)
        }),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.any(|(i, child)| below(format!("[{i}]"), child))
        }
        _ => false,
    }
}

#[test]
fn fault_field_exists_or_is_required() {
    for mistake in mistakes() {
        for fault in faults(&mistake.object) {
            // With hostNetwork the container port is also a host port.
            let field = fault.field.replace(".hostPort", ".containerPort");
            let path = format!(".{field}");
            // The parents of a missing field may be missing too.
            let is_missing = fault.kind == FaultKind::Required;
            assert!(
                is_missing || path_exists(&mistake.object, &path),
                "{fault} is reported for {}",
                mistake.object
            );
        }
    }
}

#[test]
fn valid_objects_pass_without_warnings() {
    let table = good();
    assert!(table.len() >= 30, "{}", table.len());
    for object in table {
        let faults = faults(&object);
        assert!(faults.is_empty(), "{object}: {}", summarize_faults(&faults));
        if object["kind"] == "DIJob" {
            assert_eq!(
                job_warnings(&validate_dijob(&object).unwrap().object),
                [""; 0],
                "{object}"
            );
            let mut defaulted = object.clone();
            json_patch::patch(&mut defaulted, &default_patch(&object)).unwrap();
            let policy = object["spec"].get("cleanPodPolicy");
            let mut expected = object.clone();
            set(
                &mut expected,
                "/spec/cleanPodPolicy",
                policy.cloned().unwrap_or(json!("Running")),
            );
            assert_eq!(defaulted, expected);
        }
    }
}

#[test]
fn different_kinds_of_faults_are_reported_together() {
    let mut job = job();
    for (at, value) in [
        ("/spec/cleanPodPolciy", json!("All")),
        ("/spec/cleanPodPolicy", json!("Sometimes")),
        ("/spec/coordinator", json!(null)),
        ("/spec/suspend", json!("no")),
        ("/spec/collector/replicas", json!("two")),
        ("/spec/backoffLimit", json!(-1)),
    ] {
        set(&mut job, at, value);
    }
    let reasons: Vec<_> = faults(&job)
        .iter()
        .map(|fault| (fault.field.clone(), fault.reason()))
        .collect();
    let expected = [
        ("spec.cleanPodPolciy", "FieldValueInvalid"),
        ("spec.cleanPodPolicy", "FieldValueNotSupported"),
        ("spec.coordinator.template", "FieldValueRequired"),
        ("spec.collector.replicas", "FieldValueInvalid"),
        ("spec.suspend", "FieldValueInvalid"),
        ("spec.backoffLimit", "FieldValueInvalid"),
    ];
    assert_eq!(
        reasons,
        expected.map(|(field, reason)| (field.to_owned(), reason))
    );
}

/// The job of an aggregator, which may add volumes, is unknown at validation.
#[test]
fn aggregator_may_mount_volume_of_job() {
    let mut config = config();
    set(
        &mut config,
        "/spec/aggregator/template/spec/containers/0/volumeMounts",
        json!([{"name": "data", "mountPath": "/data"}]),
    );
    assert!(faults(&config).is_empty());
}
