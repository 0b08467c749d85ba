//! The CEL rules of the CRDs agree with the validator. See docs/decisions/0011.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod table;

use cel::{Context, Program, Value as Outcome};
use di_api::validation::{validate_aggregator_config, validate_dijob, validate_dijob_update};
use serde_json::{Value, json};
use table::{PHASES, changes, good, job, mistakes, set};

/// Returns the rules of a kind.
fn rules(kind: &str) -> Vec<String> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/cel");
    let file = format!("{dir}/{}s.yaml", kind.to_lowercase());
    let patch: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let at = "/spec/versions/0/schema/openAPIV3Schema/x-kubernetes-validations";
    assert_eq!(patch[0]["path"], at);
    let rules = patch[0]["value"].as_array().unwrap().iter();
    rules
        .map(|rule| rule["rule"].as_str().unwrap().to_owned())
        .collect()
}

/// Evaluates a rule; `None` if the schema would reject the object before.
fn evaluate_rule(rule: &str, old: Option<&Value>, new: &Value) -> Option<bool> {
    let mut context = Context::default();
    context.add_variable("self", new).unwrap();
    context.add_variable("oldSelf", old.unwrap_or(new)).unwrap();
    match Program::compile(rule).unwrap().execute(&context) {
        Ok(Outcome::Bool(holds)) => Some(holds),
        Ok(other) => panic!("{rule}: {other:?}"),
        Err(_) => None,
    }
}

/// Returns the rules without `oldSelf`.
fn create_rules(kind: &str) -> Vec<String> {
    let rules = rules(kind).into_iter();
    rules.filter(|rule| !rule.contains("oldSelf")).collect()
}

#[test]
fn valid_object_passes_every_rule() {
    for object in good() {
        let kind = object["kind"].as_str().unwrap();
        if object["metadata"]["name"].is_null() {
            continue; // the API server generates the name first
        }
        for rule in create_rules(kind) {
            assert_eq!(
                evaluate_rule(&rule, None, &object),
                Some(true),
                "{rule}: {object}"
            );
        }
    }
}

#[test]
fn object_rejected_by_rule_is_rejected_by_validator() {
    let mut refused = 0;
    for mistake in mistakes() {
        let kind = mistake.object["kind"].as_str().unwrap();
        let breaks = |rule: &String| evaluate_rule(rule, None, &mistake.object) == Some(false);
        let by_rule = create_rules(kind).iter().any(breaks);
        let by_validator = match kind {
            "DIJob" => validate_dijob(&mistake.object).is_err(),
            _ => validate_aggregator_config(&mistake.object).is_err(),
        };
        assert!(
            !by_rule || by_validator,
            "{} = {}",
            mistake.at,
            mistake.value
        );
        refused += usize::from(by_rule);
        // Rules cannot read templates of leaders, which have no schema.
        let has_rule = |fault: &String| {
            fault.starts_with("metadata.name")
                || fault.contains(".template.spec.containers: Required value: one container")
        };
        if mistake.faults.iter().any(has_rule) {
            assert!(by_rule, "{} = {}", mistake.at, mistake.value);
        }
    }
    assert!(refused >= 5, "{refused}");
}

#[test]
fn update_rules_agree_with_validator() {
    let changes = changes();
    for phase in PHASES {
        let mut old = job();
        if !phase.is_empty() {
            set(&mut old, "/status", json!({"phase": phase}));
        }
        for (at, value, field) in &changes {
            let mut new = old.clone();
            set(&mut new, at, value.clone());
            let broken: Vec<_> = rules("DIJob")
                .into_iter()
                .filter(|rule| evaluate_rule(rule, Some(&old), &new) != Some(true))
                .collect();
            let ours = validate_dijob_update(&old, &new);
            assert_eq!(broken.is_empty(), ours.is_ok(), "{phase}, {at}: {broken:?}");
            if let Err(faults) = ours {
                assert_eq!(faults[0].field, *field);
            }
        }
    }
}
