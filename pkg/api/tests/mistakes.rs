//! Every mistake of the table is told in the words that stand beside it, and what is fine passes.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod table;

use std::collections::BTreeSet;

use di_api::{
    default_patch,
    validation::{
        Fault, FaultKind, job_warnings, summarize_faults, validate_aggregator_config,
        validate_dijob,
    },
};
use serde_json::{Value, json};
use table::{config, good, job, mistakes, set};

fn faults(object: &Value) -> Vec<Fault> {
    let judged = match object["kind"].as_str().unwrap() {
        "DIJob" => validate_dijob(object).map(drop),
        _ => validate_aggregator_config(object).map(drop),
    };
    judged.err().unwrap_or_default()
}

#[test]
fn every_mistake_is_found_and_told_in_the_words_of_the_table() {
    let table = mistakes();
    let places: BTreeSet<_> = table.iter().map(|m| m.object.to_string()).collect();
    assert_eq!(places.len(), table.len(), "a mistake stands twice");
    assert!(table.len() >= 120, "{}", table.len());
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

/// Whether a path leads to something in a value. Names may have dots in them.
fn leads(value: &Value, path: &str) -> bool {
    if path.is_empty() {
        return true;
    }
    let below = |place: String, child| {
        let rest = path.strip_prefix(place.as_str());
        rest.is_some_and(|rest| leads(child, rest))
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
fn a_fault_is_told_of_a_field_that_the_user_wrote_or_left_out_there() {
    for mistake in mistakes() {
        for fault in faults(&mistake.object) {
            // On the node's network the port of a container is the node's, too.
            let field = fault.field.replace(".hostPort", ".containerPort");
            let path = format!(".{field}");
            // What is left out may be so with all around it.
            let left_out = fault.kind == FaultKind::Required;
            assert!(
                left_out || leads(&mistake.object, &path),
                "{fault} is told of {}",
                mistake.object
            );
        }
    }
}

#[test]
fn what_is_fine_passes_unchanged_and_unwarned() {
    let table = good();
    assert!(table.len() >= 30, "{}", table.len());
    for object in table {
        let faults = faults(&object);
        assert!(faults.is_empty(), "{object}: {}", summarize_faults(&faults));
        if object["kind"] == "DIJob" {
            assert_eq!(
                job_warnings(&validate_dijob(&object).unwrap()),
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
fn faults_of_every_kind_come_in_one_answer() {
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

/// Which job they will be made for nobody knows yet.
#[test]
fn an_aggregator_may_mount_a_volume_that_its_job_brings() {
    let mut config = config();
    set(
        &mut config,
        "/spec/aggregator/template/spec/containers/0/volumeMounts",
        json!([{"name": "data", "mountPath": "/data"}]),
    );
    assert!(faults(&config).is_empty());
}

/// In the node's network it is the replica's own, which would stand there twice otherwise.
#[test]
fn the_replicas_own_port_may_stand_without_its_name() {
    let mut job = job();
    let pod = json!({"hostNetwork": true, "containers": [
        {"name": "di-container", "image": "i", "ports": [{"containerPort": 22273}]},
    ]});
    set(&mut job, "/spec/coordinator/template/spec", pod);
    assert!(faults(&job).is_empty());
}

#[test]
fn annotations_that_take_too_much_room_are_refused() {
    let mut job = job();
    let annotations = json!({"a": "x".repeat(262_144)});
    set(&mut job, "/metadata/annotations", annotations);
    let faults = faults(&job);
    assert_eq!(
        summarize_faults(&faults),
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    );
    assert_eq!(faults[0].reason(), "FieldValueTooLong");
}
