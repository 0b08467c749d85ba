//! Properties of validation that hold for any object.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod table;

use std::{collections::BTreeSet, sync::LazyLock};

use di_api::{
    default_patch,
    validation::{
        Fault, Valid, is_spec_unchanged, job_warnings, validate_aggregator_config, validate_dijob,
        validate_dijob_update,
    },
};
use proptest::prelude::*;
use serde_json::{Value, json};
use table::{Mistake, job, mistakes, set};

/// Every field name of the CRDs.
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    fn collect(schema: &Value, names: &mut BTreeSet<String>) {
        for (name, child) in schema["properties"].as_object().into_iter().flatten() {
            names.insert(name.clone());
            collect(child, names);
        }
        for below in ["items", "additionalProperties"] {
            if schema[below].is_object() {
                collect(&schema[below], names);
            }
        }
    }
    let mut names = BTreeSet::from(["cpu".to_owned(), "nvidia.com/gpu".to_owned()]);
    for crd in di_api::crds() {
        let crd = serde_json::to_value(crd).unwrap();
        collect(
            &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
            &mut names,
        );
    }
    names.into_iter().collect()
});

static MISTAKES: LazyLock<Vec<Mistake>> = LazyLock::new(|| {
    let all = mistakes().into_iter();
    all.filter(|mistake| mistake.object["kind"] == "DIJob")
        .collect()
});

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        "[+-]?[0-9.]{0,40}[a-zA-Z0-9+-]{0,4}".prop_map(Value::from),
        "[a-z0-9:/@.]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 4, |inner| {
        let name = prop_oneof![
            1 => "\\PC{0,6}",
            4 => proptest::sample::select(NAMES.clone()),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..4)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Returns pointers to every field of [`FULL`].
fn all_pointers() -> Vec<String> {
    fn collect(value: &Value, at: &str, places: &mut Vec<String>) {
        for (name, child) in value.as_object().into_iter().flatten() {
            let at = format!("{at}/{name}");
            collect(child, &at, places);
            places.push(at);
        }
        for (i, child) in value.as_array().into_iter().flatten().enumerate() {
            collect(child, &format!("{at}/{i}"), places);
        }
    }
    let mut places = Vec::new();
    collect(&FULL, "", &mut places);
    places
}

/// A valid job with as many fields as possible.
static FULL: LazyLock<Value> = LazyLock::new(|| {
    let jobs = table::good();
    let named = |name: &str| {
        jobs.iter()
            .find(|job| job["metadata"]["name"] == name)
            .cloned()
    };
    let mut full = named("everything").unwrap();
    for (role, from) in [
        ("coordinator", "environment"),
        ("collector", "affinity"),
        ("learner", "probes"),
    ] {
        let other = named(from).unwrap();
        let part = if from == "affinity" {
            "collector"
        } else {
            "coordinator"
        };
        full["spec"][role]["template"] = other["spec"][part]["template"].clone();
    }
    full["spec"]["volumes"] = named("volumes").unwrap()["spec"]["volumes"].clone();
    full
});

fn validate_both_ways(object: &Value, other: &Value) {
    for (old, new) in [(object, other), (other, object), (object, object)] {
        if let Ok(Some(job)) = validate_dijob_update(old, new) {
            job_warnings(&job.object);
        }
        let _ = validate_dijob(new).map(|job| job_warnings(&job.object));
        let _ = validate_aggregator_config(new);
    }
    assert!(is_spec_unchanged(object, object));
}

fn faults_of(object: &Value) -> Vec<Fault> {
    let known = validate_dijob(object).and_then(Valid::without_unknown_fields);
    known.err().unwrap_or_default()
}

fn with_defaults(object: &Value) -> Value {
    let mut object = object.clone();
    let patch = default_patch(&object);
    json_patch::patch(&mut object, &patch).unwrap();
    object
}

/// Whether neither pointer is within the other.
fn are_disjoint(one: &str, other: &str) -> bool {
    let within = |inner: &str, outer: &str| format!("{inner}/").starts_with(&format!("{outer}/"));
    !within(one, other) && !within(other, one)
}

/// Checks that defaulting is idempotent, and neither adds nor removes faults.
fn check_defaulting(object: &Value) -> Result<(), TestCaseError> {
    let once = with_defaults(object);
    prop_assert!(default_patch(&once).0.is_empty());
    prop_assert_eq!(faults_of(&once), faults_of(object));
    Ok(())
}

proptest! {
    #[test]
    fn any_json_does_not_panic(object in any_json(), other in any_json()) {
        validate_both_ways(&object, &other);
        let within = json!({"spec": {"coordinator": {"template": {"spec": other}}}, "status": object});
        validate_both_ways(&json!({"spec": object}), &within);
    }

    #[test]
    fn valid_job_with_any_value_does_not_panic(
        place in proptest::sample::select(all_pointers()),
        value in any_json(),
    ) {
        let mut changed = FULL.clone();
        set(&mut changed, &place, value);
        validate_both_ways(&changed, &FULL);
    }

    #[test]
    fn defaulting_is_idempotent_and_keeps_faults(
        object in any_json(),
        policy in any_json(),
        mistake in 0..MISTAKES.len(),
    ) {
        check_defaulting(&object)?;
        check_defaulting(&json!({"spec": object}))?;
        let mut mistaken = MISTAKES[mistake].object.clone();
        check_defaulting(&mistaken)?;
        if mistaken["spec"].is_object() {
            mistaken["spec"]["cleanPodPolicy"] = policy;
            check_defaulting(&mistaken)?;
        }
    }

    #[test]
    fn any_quantity_does_not_panic(text in "[+-]?[0-9.]{0,40}[a-zA-Z0-9+-]{0,4}") {
        let mut job = job();
        let container = "/spec/coordinator/template/spec/containers/0/resources";
        set(&mut job, container, json!({"limits": {"cpu": text}, "requests": {"cpu": text, "a/b": text}}));
        validate_both_ways(&job, &table::job());
    }
}

/// A part of a message, and a field in which another mistake hides this one.
const HIDDEN_BY: [(&str, &str); 5] = [
    // The message has the declared number.
    ("the number of declared collectors", "/spec/collector"),
    ("the number of declared learners", "/spec/learner"),
    // Reported once, at the count with which the sum becomes too large.
    ("together with the job's other replicas", "/spec/collector"),
    ("together with the job's other replicas", "/spec/learner"),
    // References to undecodable volumes are not checked.
    ("Not found: ", "/spec/volumes"),
];

#[test]
fn two_mistakes_are_both_reported() {
    let is_hidden = |fault: &str, other: &Mistake| {
        HIDDEN_BY
            .iter()
            .any(|(says, place)| fault.contains(says) && other.at.starts_with(place))
    };
    let mut missing = Vec::new();
    let jobs = MISTAKES
        .iter()
        .filter(|mistake| mistake.object["spec"].is_object());
    for (one, other) in jobs.flat_map(|one| MISTAKES.iter().map(move |other| (one, other))) {
        if !are_disjoint(&one.at, &other.at) {
            continue;
        }
        let mut both = one.object.clone();
        set(&mut both, &other.at, other.value.clone());
        let found: Vec<_> = faults_of(&both).iter().map(ToString::to_string).collect();
        let expected = one.faults.iter().filter(|fault| !is_hidden(fault, other));
        let expected = expected.chain(other.faults.iter().filter(|fault| !is_hidden(fault, one)));
        missing.extend(
            expected
                .filter(|fault| !found.contains(fault))
                .map(|fault| format!("{fault} is not among {found:#?}")),
        );
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
