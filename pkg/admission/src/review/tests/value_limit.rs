use super::*;

/// A job of some 300 KB that needs 25 MB when decoded.
fn job_with_many_values() -> Value {
    let mut job = valid_job();
    job["spec"]["volumes"] = vec![json!({"": 0}); 40_000].into();
    job
}

#[test]
fn too_many_values_are_denied_before_decoding() {
    let message = r#"dijobs.diengine.opendilab.org "cartpole" is too large: the request may have at most 300000 fields and list items, including the old object and managedFields; shorten the lists of the object"#;
    for review in [
        create_review(&job_with_many_values()),
        update_review(&valid_job(), &job_with_many_values()),
        update_review(&job_with_many_values(), &valid_job()),
    ] {
        let mutated = mutate(review.to_string().as_bytes()).unwrap();
        for response in [response_json(&mutated), validate_review(&review)] {
            assert_eq!(response["allowed"], false);
            let status = &response["status"];
            assert_eq!(
                (&status["code"], &status["message"]),
                (&json!(413), &json!(message))
            );
        }
    }
    let mut nameless = create_review(&job_with_many_values());
    nameless["request"]["name"] = json!("");
    nameless["request"]["object"]["metadata"] = json!({"generateName": "run-"});
    let response = validate_review(&nameless);
    assert_eq!(response["status"]["details"]["name"], "run-");
}

#[test]
fn deletion_is_allowed_despite_value_limit() {
    let mut deleting = job_with_many_values();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    let mut deletion = review_of("DIJob", "v1alpha2", "DELETE", &Value::Null);
    deletion["request"]["oldObject"] = job_with_many_values();
    for review in [deletion, update_review(&deleting, &deleting)] {
        assert_eq!(validate_review(&review)["allowed"], true);
        assert!(mutate(review.to_string().as_bytes()).unwrap().allowed);
    }
    let unstored = update_review(&job_with_many_values(), &deleting);
    assert_eq!(validate_review(&unstored)["allowed"], false);
}

#[test]
fn too_many_empty_items_are_reported_by_count() {
    let mut job = valid_job();
    job["spec"]["volumes"] = vec![json!({}); 80_000].into();
    for review in [create_review(&job), update_review(&valid_job(), &job)] {
        assert_eq!(
            validate_review(&review)["status"]["message"],
            r#"DIJob.diengine.opendilab.org "cartpole" is invalid: spec.volumes: Too many: 80000: must have at most 1000 items"#
        );
    }
}

#[test]
fn large_valid_job_is_within_value_limit() {
    let names: Vec<_> = (0..400).map(|i| format!("VARIABLE_{i}")).collect();
    let variables: Value = names
        .iter()
        .map(|name| json!({"name": name, "value": "x".repeat(190)}))
        .collect();
    let owned: Value = names
        .iter()
        .map(|name| {
            let key = format!(r#"k:{{"name":"{name}"}}"#);
            (key, json!({".": {}, "f:name": {}, "f:value": {}}))
        })
        .collect();
    let mut template = template();
    template["spec"]["containers"][0]["env"] = variables;
    let role = json!({"template": template});
    let mut job = job_with_spec(&json!({
        "cleanPodPolicy": "Running", "coordinator": role, "collector": role, "learner": role,
    }));
    let owned = json!({"f:coordinator": owned, "f:collector": owned, "f:learner": owned});
    let manager = json!({
        "manager": "kubectl", "operation": "Apply", "apiVersion": "diengine.opendilab.org/v1alpha2",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": owned},
    });
    job["metadata"]["managedFields"] = vec![manager; 3].into();
    let mut other = job.clone();
    other["spec"]["collector"]["replicas"] = json!(2);
    assert!(job.to_string().len() > 500_000);
    for review in [create_review(&job), update_review(&job, &other)] {
        let response = validate_review(&review);
        assert_eq!(response["allowed"], true, "{}", response["status"]);
        assert!(mutate(review.to_string().as_bytes()).unwrap().allowed);
    }
}
