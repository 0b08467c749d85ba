use di_api::names;
use di_fixtures::{Job, template};
use k8s_openapi::ByteString;
use serde_json::json;

use super::*;
use crate::Error;

mod authorization;
mod updates;
mod value_limit;

fn valid_job() -> Value {
    let job = Job::test().named("cartpole");
    job.clean_pod_policy("Running").json()
}

fn job_with_spec(spec: &Value) -> Value {
    let mut job = valid_job();
    job["spec"] = spec.clone();
    job
}

fn config_with_template(name: &str, template: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"aggregator": {"template": template}}})
}

fn valid_config() -> Value {
    config_with_template("aggregator-config", &template())
}

fn review_of(kind: &str, version: &str, operation: &str, object: &Value) -> Value {
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

fn create_review(object: &Value) -> Value {
    review_of("DIJob", "v1alpha2", "CREATE", object)
}

fn outcome_of(review: &Value) -> ReviewOutcome {
    validate(review.to_string().as_bytes(), None).unwrap()
}

/// The response if the author may create pods.
fn response_if_authorized(outcome: ReviewOutcome) -> ReviewResponse {
    match outcome {
        ReviewOutcome::Final(response) => response,
        ReviewOutcome::NeedsAuthorization(check) => check.allow_response().unwrap(),
    }
}

fn decode_response(response: &ReviewResponse) -> Value {
    let review: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(review["response"]["allowed"], response.allowed);
    assert_eq!(review["response"]["uid"], "0c9a8d74");
    review
}

fn response_json(response: &ReviewResponse) -> Value {
    decode_response(response)["response"].clone()
}

fn validate_review(review: &Value) -> Value {
    response_json(&response_if_authorized(outcome_of(review)))
}

fn mutate_object(object: &Value) -> (Value, Value) {
    let review = create_review(object);
    let response = mutate(review.to_string().as_bytes()).unwrap();
    assert!(response.allowed);
    let response = response_json(&response);
    let mut object = object.clone();
    if !response["patch"].is_null() {
        let ByteString(patch) = serde_json::from_value(response["patch"].clone()).unwrap();
        let patch: Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    (response, object)
}

fn update_review(old: &Value, new: &Value) -> Value {
    let mut review = review_of("DIJob", "v1alpha2", "UPDATE", new);
    review["request"]["oldObject"] = old.clone();
    review
}

#[test]
fn valid_objects_are_allowed() {
    let config = valid_config();
    for version in ["v1alpha1", "v1alpha2"] {
        for operation in ["CREATE", "UPDATE"] {
            for (kind, object) in [("DIJob", &valid_job()), ("AggregatorConfig", &config)] {
                let response = validate_review(&review_of(kind, version, operation, object));
                assert_eq!(response["allowed"], true, "{response}");
            }
        }
    }
}

#[test]
fn invalid_object_is_denied_with_field_of_fault() {
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
            let response =
                validate_review(&review_of(kind, version, "CREATE", &job_with_spec(&spec)));
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
fn update_is_validated_by_new_object() {
    let invalid = job_with_spec(&json!({"cleanPodPolicy": "Sometimes"}));
    let mut review = review_of("DIJob", "v1alpha2", "UPDATE", &invalid);
    review["request"]["oldObject"] = valid_job();
    assert_eq!(validate_review(&review)["allowed"], false);
    review["request"]["object"] = valid_job();
    review["request"]["oldObject"] = invalid;
    assert_eq!(validate_review(&review)["allowed"], true);
}

#[test]
fn deletion_of_invalid_object_is_allowed() {
    let mut invalid = job_with_spec(&json!({"cleanPodPolicy": "Sometimes"}));
    let null = Value::Null;
    for operation in ["DELETE", "CONNECT"] {
        for kind in ["DIJob", "AggregatorConfig"] {
            let response = validate_review(&review_of(kind, "v1alpha2", operation, &null));
            assert_eq!(response["allowed"], true);
        }
    }
    let good = valid_job();
    invalid["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    assert_eq!(
        validate_review(&update_review(&invalid, &invalid))["allowed"],
        true
    );
    assert!(matches!(
        outcome_of(&update_review(&invalid, &good)),
        ReviewOutcome::Final(_)
    ));
    // Only the deletion timestamp of a stored object counts.
    let unstored = review_of("DIJob", "v1alpha1", "CREATE", &invalid);
    assert_eq!(validate_review(&unstored)["allowed"], false);
}

#[test]
fn unsupported_kind_is_denied_with_message() {
    let other_group = {
        let mut review = create_review(&valid_job());
        review["request"]["kind"]["group"] = json!("apps");
        review
    };
    for review in [
        review_of("Pod", "v1", "CREATE", &valid_job()),
        review_of("DIJob", "v2", "CREATE", &valid_job()),
        other_group,
    ] {
        let response = validate_review(&review);
        assert_eq!(response["allowed"], false);
        assert_eq!(response["status"]["code"], 400);
        let message = response["status"]["message"].as_str().unwrap();
        assert!(message.contains("do not support"), "{message}");
        assert!(!mutate(review.to_string().as_bytes()).unwrap().allowed);
    }
}

#[test]
fn generate_name_is_shown_for_missing_name() {
    let mut invalid = job_with_spec(&json!({}));
    invalid["metadata"] = json!({"generateName": "run-"});
    let mut review = create_review(&invalid);
    review["request"]["name"] = json!("");
    let response = validate_review(&review);
    assert_eq!(response["status"]["details"]["name"], "run-");
}

#[test]
fn defaults_are_returned_as_base64_json_patch() {
    for written in [json!({}), json!({"cleanPodPolicy": ""})] {
        let (response, object) = mutate_object(&job_with_spec(&written));
        assert_eq!(response["patchType"], "JSONPatch");
        assert_eq!(object["spec"]["cleanPodPolicy"], "Running");
    }
    let (response, object) = mutate_object(&job_with_spec(&json!({"cleanPodPolicy": "ALL"})));
    assert!(response["patch"].is_string(), "{response}");
    assert_eq!(object["spec"]["cleanPodPolicy"], "All");
}

#[test]
fn complete_object_gets_no_patch() {
    let (unpatched, _) = mutate_object(&valid_job());
    assert!(unpatched.get("patch").is_none() && unpatched.get("patchType").is_none());
    let config = review_of(
        "AggregatorConfig",
        "v1alpha1",
        "CREATE",
        &job_with_spec(&json!({})),
    );
    let response = mutate(config.to_string().as_bytes()).unwrap();
    assert!(response.allowed && response_json(&response).get("patch").is_none());
}

#[test]
fn response_has_api_version_of_request() {
    for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
        let mut review = create_review(&valid_job());
        review["apiVersion"] = json!(version);
        let mutated = mutate(review.to_string().as_bytes()).unwrap();
        let ReviewOutcome::NeedsAuthorization(check) = outcome_of(&review) else {
            panic!("no authorization needed");
        };
        let responses = [
            mutated,
            check.deny_response().unwrap(),
            check.error_response().unwrap(),
            check.allow_response().unwrap(),
        ];
        for response in responses.map(|response| decode_response(&response)) {
            assert_eq!(response["apiVersion"], version);
            assert_eq!(response["kind"], "AdmissionReview");
            assert!(response.get("request").is_none());
        }
    }
}

#[test]
fn invalid_review_is_malformed() {
    let mut newer = create_review(&valid_job());
    newer["apiVersion"] = json!("admission.k8s.io/v2");
    let mut empty = create_review(&valid_job());
    empty["request"] = Value::Null;
    let mut unknown_operation = create_review(&valid_job());
    unknown_operation["request"]["operation"] = json!("PATCH");
    let mut invalid_user = create_review(&valid_job());
    invalid_user["request"]["userInfo"] = json!("ann");
    let mut missing = create_review(&valid_job());
    missing["request"].as_object_mut().unwrap().remove("kind");
    let nested = {
        let mut object = valid_job();
        for _ in 0..200 {
            object = json!({ "spec": object });
        }
        create_review(&object)
    };
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for body in [
        "",
        "{",
        "[]",
        "null",
        &deep,
        &valid_job().to_string(),
        &newer.to_string(),
        &empty.to_string(),
        &create_review(&Value::Null).to_string(),
        &create_review(&json!([])).to_string(),
        &create_review(&json!("job")).to_string(),
        &unknown_operation.to_string(),
        &invalid_user.to_string(),
        &missing.to_string(),
        &nested.to_string(),
        &format!(
            "{} {}",
            create_review(&valid_job()),
            create_review(&valid_job())
        ),
    ] {
        let errors = [
            mutate(body.as_bytes()).unwrap_err(),
            validate(body.as_bytes(), None).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::Malformed(_)), "{error}");
        }
    }
}

#[test]
fn warnings_are_returned_in_both_versions() {
    let mut doubtful = valid_job();
    doubtful["spec"]["ttlSecondsAfterFinished"] = json!(0);
    for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
        let mut review = create_review(&doubtful);
        review["apiVersion"] = json!(version);
        let response = validate_review(&review);
        assert_eq!(response["allowed"], true);
        assert_eq!(
            response["warnings"],
            json!([
                "spec.ttlSecondsAfterFinished: 0 deletes the job, its pods and their logs as soon as it ends"
            ])
        );
    }
    // A denial has the warnings too, if the object can be decoded.
    let warning = validate_review(&create_review(&doubtful))["warnings"].take();
    let mut invalid = doubtful.clone();
    invalid["spec"]["coordinator"]["template"]["spec"]["containers"][0]["name"] = json!("main");
    for review in [
        create_review(&invalid),
        update_review(&valid_job(), &invalid),
    ] {
        let response = validate_review(&review);
        assert_eq!(
            (&response["allowed"], &response["warnings"]),
            (&json!(false), &warning)
        );
    }
    invalid["spec"]["suspend"] = json!("no");
    let unreadable = validate_review(&create_review(&invalid));
    assert_eq!(unreadable["allowed"], false);
    assert!(unreadable.get("warnings").is_none());
    let mut labelled = doubtful.clone();
    labelled["metadata"]["labels"] = json!({"team": "rl"});
    for review in [
        create_review(&valid_job()),
        update_review(&doubtful, &labelled),
    ] {
        assert!(validate_review(&review).get("warnings").is_none());
    }
}

#[test]
fn gang_without_scheduler_gets_warning() {
    let volcano = GangScheduler::Volcano;
    let gang = json!({"gang": {}});
    for (scheduling, scheduler, has_warning) in [
        (Value::Null, None, false),
        (gang.clone(), None, true),
        (gang, Some(&volcano), false),
    ] {
        let mut job = valid_job();
        job["spec"]["scheduling"] = scheduling;
        let new = create_review(&job);
        let changed = update_review(&valid_job(), &job);
        for review in [new, changed] {
            let outcome = validate(review.to_string().as_bytes(), scheduler).unwrap();
            let response = response_json(&response_if_authorized(outcome));
            let warnings = &response["warnings"];
            assert_eq!(!warnings.is_null(), has_warning, "{warnings}");
        }
    }
}

#[test]
fn config_with_unused_name_gets_warning() {
    for (name, expected) in [
        ("aggregator-config", Value::Null),
        (
            "agconfig",
            json!(["metadata.name: only an AggregatorConfig named aggregator-config is used"]),
        ),
    ] {
        let config = config_with_template(name, &template());
        let review = review_of("AggregatorConfig", "v1alpha1", "CREATE", &config);
        let response = validate_review(&review);
        assert_eq!(
            (&response["allowed"], &response["warnings"]),
            (&json!(true), &expected)
        );
    }
}

#[test]
fn misspelled_field_is_denied_with_suggestion() {
    let mut invalid = valid_job();
    invalid["spec"]["cleanPodPolciy"] = json!("All");
    let response = validate_review(&create_review(&invalid));
    assert_eq!(
        response["status"]["message"],
        r#"DIJob.diengine.opendilab.org "cartpole" is invalid: spec.cleanPodPolciy: Invalid value: unknown field, did you mean cleanPodPolicy?"#
    );
}
