use super::*;

#[test]
fn template_of_started_job_is_immutable() {
    let mut old = valid_job();
    old["status"] = json!({"phase": "Running"});
    let mut new = old.clone();
    new["spec"]["coordinator"]["template"]["spec"]["containers"][0]["image"] = json!("other");
    let response = validate_review(&update_review(&old, &new));
    assert_eq!(response["allowed"], false);
    assert_eq!(
        response["status"]["details"]["causes"][0],
        json!({
            "reason": "FieldValueForbidden",
            "field": "spec.coordinator.template",
            "message": "Forbidden: may not be changed once the job has started; suspend the job and wait for phase Suspended, or create a new job",
        })
    );
    new = old.clone();
    new["spec"]["suspend"] = json!(true);
    assert_eq!(validate_review(&update_review(&old, &new))["allowed"], true);
}

#[test]
fn queue_label_of_started_job_is_immutable() {
    let mut old = valid_job();
    old["status"] = json!({"phase": "Running"});
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "team-a"});
    let response = validate_review(&update_review(&old, &new));
    assert_eq!(response["allowed"], false);
    assert_eq!(
        response["status"]["details"]["causes"][0],
        json!({
            "reason": "FieldValueForbidden",
            "field": "metadata.labels[kueue.x-k8s.io/queue-name]",
            "message": "Forbidden: may not be changed once the job has been admitted; suspend the job and wait for phase Suspended",
        })
    );
    // The label needs no permission to create pods: it changes no template.
    old["status"] = json!({"phase": "Queued"});
    let outcome = outcome_of(&update_review(&old, &new));
    let is_allowed = matches!(&outcome, ReviewOutcome::Final(response) if response.allowed);
    assert!(is_allowed, "{outcome:?}");
}

#[test]
fn unchanged_invalid_spec_does_not_block_update() {
    for spec in [
        json!({"cleanPodPolicy": "Sometimes"}),
        json!({"coordinator": {"template": {"spec": 3}}}),
        json!(null),
    ] {
        let old = job_with_spec(&spec);
        let mut new = old.clone();
        new["metadata"]["labels"] = json!({"team": "rl"});
        for kind in ["DIJob", "AggregatorConfig"] {
            let mut review = update_review(&old, &new);
            review["request"]["kind"]["kind"] = json!(kind);
            let response = validate_review(&review);
            assert_eq!(response["allowed"], true, "{response}");
        }
    }
}

#[test]
fn config_update_needs_valid_spec_and_authorization() {
    let config = |image: &str| {
        let template = json!({"spec": {"containers": [{"name": "di-container", "image": image}]}});
        config_with_template("aggregator-config", &template)
    };
    let with = |mut config: Value, pointer: &str, value: Value| {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        config.pointer_mut(parent).unwrap()[name] = value;
        config
    };
    let valid = || config("a");
    let labelled = |config| with(config, "/metadata/labels", json!({"team": "rl"}));
    let invalid = || config("");
    let unknown = || with(valid(), "/spec/aggregator/tempalte", json!({}));
    let deleting = |config| {
        with(
            config,
            "/metadata/deletionTimestamp",
            json!("2026-01-02T03:04:05Z"),
        )
    };
    // Old, new, whether the update is allowed, whether it needs authorization.
    for (old, new, allowed, needs_authorization) in [
        (valid(), valid(), true, false),
        (valid(), labelled(valid()), true, false),
        (valid(), config("b"), true, true),
        (invalid(), valid(), true, true),
        (unknown(), valid(), true, true),
        (valid(), invalid(), false, false),
        (valid(), unknown(), false, false),
        (valid(), with(valid(), "/spec", json!(null)), false, false),
        (
            valid(),
            with(valid(), "/spec/aggregator", json!({})),
            false,
            false,
        ),
        (invalid(), labelled(invalid()), true, false),
        (invalid(), unknown(), false, false),
        (deleting(valid()), deleting(invalid()), true, false),
        (valid(), deleting(invalid()), false, false),
    ] {
        let mut review = update_review(&old, &new);
        review["request"]["kind"]["kind"] = json!("AggregatorConfig");
        let outcome = outcome_of(&review);
        assert_eq!(
            matches!(outcome, ReviewOutcome::NeedsAuthorization(_)),
            needs_authorization,
            "{review}"
        );
        assert_eq!(response_if_authorized(outcome).allowed, allowed, "{review}");
    }
}
