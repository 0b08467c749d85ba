use di_api::names;
use k8s_openapi::ByteString;
use serde_json::json;

use super::*;
use crate::Error;

mod heavy;
mod rights;
mod updates;

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "di-container", "image": "worker"}]}})
}

fn job(spec: &Value) -> Value {
    json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2",
        "kind": "DIJob",
        "metadata": {"name": "cartpole", "namespace": "rl"},
        "spec": spec,
    })
}

fn good() -> Value {
    job(&json!({"cleanPodPolicy": "Running", "coordinator": {"template": template()}}))
}

fn review(kind: &str, version: &str, operation: &str, object: &Value) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0c9a8d74",
            "kind": {"group": names::GROUP, "version": version, "kind": kind},
            "resource": {"group": names::GROUP, "version": version, "resource": plural},
            "name": "cartpole",
            "namespace": "rl",
            "operation": operation,
            "userInfo": {
                "username": "ann",
                "uid": "7",
                "groups": ["system:authenticated"],
                "extra": {"scopes": ["a", "b"]},
            },
            "object": object,
            "oldObject": null,
            "dryRun": true,
            "options": null,
        },
    })
}

fn create(object: &Value) -> Value {
    review("DIJob", "v1alpha2", "CREATE", object)
}

fn judged(review: &Value) -> Judgement {
    validate(review.to_string().as_bytes()).unwrap()
}

/// Where its author may create pods.
fn granted(judgement: Judgement) -> Answer {
    match judgement {
        Judgement::Final(answer) => answer,
        Judgement::Claimed(claim) => claim.granted().unwrap(),
    }
}

fn read(answer: &Answer) -> Value {
    let review: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(review["response"]["allowed"], answer.allowed);
    assert_eq!(review["response"]["uid"], "0c9a8d74");
    review
}

fn response(answer: &Answer) -> Value {
    read(answer)["response"].clone()
}

fn validated(review: &Value) -> Value {
    response(&granted(judged(review)))
}

fn mutated(object: &Value) -> (Value, Value) {
    let review = create(object);
    let answer = mutate(review.to_string().as_bytes()).unwrap();
    assert!(answer.allowed);
    let response = response(&answer);
    let mut object = object.clone();
    if !response["patch"].is_null() {
        let ByteString(patch) = serde_json::from_value(response["patch"].clone()).unwrap();
        let patch: Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    (response, object)
}

fn update(old: &Value, new: &Value) -> Value {
    let mut review = review("DIJob", "v1alpha2", "UPDATE", new);
    review["request"]["oldObject"] = old.clone();
    review
}

#[test]
fn what_can_run_is_allowed() {
    let config = json!({
        "metadata": {"name": "aggregator-config"},
        "spec": {"aggregator": {"template": template()}},
    });
    for version in ["v1alpha1", "v1alpha2"] {
        for operation in ["CREATE", "UPDATE"] {
            for (kind, object) in [("DIJob", &good()), ("AggregatorConfig", &config)] {
                let response = validated(&review(kind, version, operation, object));
                assert_eq!(response["allowed"], true, "{response}");
            }
        }
    }
}

#[test]
fn what_cannot_run_is_denied_with_the_field_at_fault() {
    let coordinator = json!({"template": template()});
    let nameless = json!({"template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}});
    let cases = [
        (
            "DIJob",
            json!({"cleanPodPolicy": "Sometimes", "coordinator": coordinator}),
            "spec.cleanPodPolicy",
            "FieldValueNotSupported",
        ),
        (
            "DIJob",
            json!({"collector": coordinator}),
            "spec.coordinator.template",
            "FieldValueRequired",
        ),
        (
            "DIJob",
            json!({"coordinator": nameless}),
            "spec.coordinator.template.spec.containers",
            "FieldValueRequired",
        ),
        (
            "AggregatorConfig",
            json!({"aggregator": {}}),
            "spec.aggregator.template",
            "FieldValueRequired",
        ),
    ];
    for (kind, spec, field, reason) in cases {
        for version in ["v1alpha1", "v1alpha2"] {
            let response = validated(&review(kind, version, "CREATE", &job(&spec)));
            assert_eq!(response["allowed"], false, "{spec}");
            let status = &response["status"];
            assert_eq!(
                (&status["code"], &status["reason"]),
                (&json!(422), &json!("Invalid"))
            );
            let start = format!("{kind}.diengine.opendilab.org \"cartpole\" is invalid: {field}: ");
            let message = status["message"].as_str().unwrap();
            assert!(message.starts_with(&start), "{message}");
            let details = &status["details"];
            assert_eq!(
                (&details["name"], &details["group"], &details["kind"]),
                (&json!("cartpole"), &json!(names::GROUP), &json!(kind))
            );
            let cause = &details["causes"][0];
            assert_eq!(
                (&cause["field"], &cause["reason"]),
                (&json!(field), &json!(reason))
            );
            assert!(cause["message"].as_str().is_some_and(|m| !m.is_empty()));
        }
    }
}

#[test]
fn an_update_is_judged_by_the_new_object() {
    let bad = job(&json!({"cleanPodPolicy": "Sometimes"}));
    let mut review = review("DIJob", "v1alpha2", "UPDATE", &bad);
    review["request"]["oldObject"] = good();
    assert_eq!(validated(&review)["allowed"], false);
    review["request"]["object"] = good();
    review["request"]["oldObject"] = bad;
    assert_eq!(validated(&review)["allowed"], true);
}

#[test]
fn what_is_going_is_never_held_up() {
    let mut bad = job(&json!({"cleanPodPolicy": "Sometimes"}));
    let null = Value::Null;
    for operation in ["DELETE", "CONNECT"] {
        for kind in ["DIJob", "AggregatorConfig"] {
            let response = validated(&review(kind, "v1alpha2", operation, &null));
            assert_eq!(response["allowed"], true);
        }
    }
    let good = good();
    bad["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    assert_eq!(validated(&update(&bad, &bad))["allowed"], true);
    assert!(matches!(judged(&update(&bad, &good)), Judgement::Final(_)));
    // Only what is stored tells.
    let unstored = review("DIJob", "v1alpha1", "CREATE", &bad);
    assert_eq!(validated(&unstored)["allowed"], false);
}

#[test]
fn aliens_are_denied_and_told_so() {
    let alien_group = {
        let mut review = create(&good());
        review["request"]["kind"]["group"] = json!("apps");
        review
    };
    for review in [
        review("Pod", "v1", "CREATE", &good()),
        review("DIJob", "v2", "CREATE", &good()),
        alien_group,
    ] {
        let response = validated(&review);
        assert_eq!(response["allowed"], false);
        assert_eq!(response["status"]["code"], 400);
        let message = response["status"]["message"].as_str().unwrap();
        assert!(message.contains("do not know"), "{message}");
        assert!(!mutate(review.to_string().as_bytes()).unwrap().allowed);
    }
}

#[test]
fn generated_names_are_shown_by_their_beginning() {
    let mut bad = job(&json!({}));
    bad["metadata"] = json!({"generateName": "run-"});
    let mut review = create(&bad);
    review["request"]["name"] = json!("");
    let response = validated(&review);
    assert_eq!(response["status"]["details"]["name"], "run-");
}

#[test]
fn defaults_come_as_a_base64_json_patch() {
    for written in [json!({}), json!({"cleanPodPolicy": ""})] {
        let (response, object) = mutated(&job(&written));
        assert_eq!(response["patchType"], "JSONPatch");
        assert_eq!(object["spec"]["cleanPodPolicy"], "Running");
    }
    let (response, object) = mutated(&job(&json!({"cleanPodPolicy": "ALL"})));
    assert!(response["patch"].is_string(), "{response}");
    assert_eq!(object["spec"]["cleanPodPolicy"], "All");
}

#[test]
fn nothing_is_patched_where_nothing_is_to_be_filled_in() {
    let (unpatched, _) = mutated(&good());
    assert!(unpatched.get("patch").is_none() && unpatched.get("patchType").is_none());
    let config = review("AggregatorConfig", "v1alpha1", "CREATE", &job(&json!({})));
    let answer = mutate(config.to_string().as_bytes()).unwrap();
    assert!(answer.allowed && response(&answer).get("patch").is_none());
}

#[test]
fn an_answer_is_of_the_version_that_was_asked_in() {
    for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
        let mut review = create(&good());
        review["apiVersion"] = json!(version);
        let mutated = mutate(review.to_string().as_bytes()).unwrap();
        let Judgement::Claimed(claim) = judged(&review) else {
            panic!("anybody could run it");
        };
        let answers = [
            mutated,
            claim.refused().unwrap(),
            claim.undecided().unwrap(),
            claim.granted().unwrap(),
        ];
        for answer in answers.map(|answer| read(&answer)) {
            assert_eq!(answer["apiVersion"], version);
            assert_eq!(answer["kind"], "AdmissionReview");
            assert!(answer.get("request").is_none());
        }
    }
}

#[test]
fn what_is_no_review_is_malformed() {
    let mut newer = create(&good());
    newer["apiVersion"] = json!("admission.k8s.io/v2");
    let mut empty = create(&good());
    empty["request"] = Value::Null;
    let mut unheard_of = create(&good());
    unheard_of["request"]["operation"] = json!("PATCH");
    let mut nobody = create(&good());
    nobody["request"]["userInfo"] = json!("ann");
    let mut missing = create(&good());
    missing["request"].as_object_mut().unwrap().remove("kind");
    let nested = {
        let mut object = good();
        for _ in 0..200 {
            object = json!({ "spec": object });
        }
        create(&object)
    };
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for body in [
        "",
        "{",
        "[]",
        "null",
        &deep,
        &good().to_string(),
        &newer.to_string(),
        &empty.to_string(),
        &create(&Value::Null).to_string(),
        &create(&json!([])).to_string(),
        &create(&json!("job")).to_string(),
        &unheard_of.to_string(),
        &nobody.to_string(),
        &missing.to_string(),
        &nested.to_string(),
        &format!("{} {}", create(&good()), create(&good())),
    ] {
        let errors = [
            mutate(body.as_bytes()).unwrap_err(),
            validate(body.as_bytes()).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::Malformed(_)), "{error}");
        }
    }
}

#[test]
fn doubts_come_as_warnings_in_both_versions() {
    let mut doubtful = good();
    doubtful["spec"]["ttlSecondsAfterFinished"] = json!(0);
    for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
        let mut review = create(&doubtful);
        review["apiVersion"] = json!(version);
        let response = validated(&review);
        assert_eq!(response["allowed"], true);
        assert_eq!(
            response["warnings"],
            json!([
                "spec.ttlSecondsAfterFinished: 0 deletes the job, its pods and their logs as soon as it ends"
            ])
        );
    }
    // Beside a refusal, too, where it can be read.
    let warning = validated(&create(&doubtful))["warnings"].take();
    let mut bad = doubtful.clone();
    bad["spec"]["coordinator"]["template"]["spec"]["containers"][0]["name"] = json!("main");
    for review in [create(&bad), update(&good(), &bad)] {
        let response = validated(&review);
        assert_eq!(
            (&response["allowed"], &response["warnings"]),
            (&json!(false), &warning)
        );
    }
    bad["spec"]["suspend"] = json!("no");
    let unreadable = validated(&create(&bad));
    assert_eq!(unreadable["allowed"], false);
    assert!(unreadable.get("warnings").is_none());
    let mut labelled = doubtful.clone();
    labelled["metadata"]["labels"] = json!({"team": "rl"});
    for review in [create(&good()), update(&doubtful, &labelled)] {
        assert!(validated(&review).get("warnings").is_none());
    }
}

#[test]
fn a_configuration_that_nobody_looks_for_is_warned_of() {
    let called = |name: &str| json!({"metadata": {"name": name}, "spec": {"aggregator": {"template": template()}}});
    for (name, expected) in [
        ("aggregator-config", Value::Null),
        (
            "agconfig",
            json!([
                "metadata.name: only an AggregatorConfig named aggregator-config is used"
            ]),
        ),
    ] {
        let review = review("AggregatorConfig", "v1alpha1", "CREATE", &called(name));
        let response = validated(&review);
        assert_eq!(
            (&response["allowed"], &response["warnings"]),
            (&json!(true), &expected)
        );
    }
}

#[test]
fn a_misspelt_field_is_denied_by_its_name() {
    let mut bad = good();
    bad["spec"]["cleanPodPolciy"] = json!("All");
    let response = validated(&create(&bad));
    assert_eq!(
        response["status"]["message"],
        r#"DIJob.diengine.opendilab.org "cartpole" is invalid: spec.cleanPodPolciy: Invalid value: unknown field, did you mean cleanPodPolicy?"#
    );
}
