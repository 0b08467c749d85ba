use super::*;

/// Some 300 KB, which would be 25 MB.
fn heavy() -> Value {
    let mut job = good();
    job["spec"]["volumes"] = vec![json!({"": 0}); 40_000].into();
    job
}

#[test]
fn what_has_too_much_in_it_is_refused_before_it_is_decoded() {
    let message = r#"dijobs.diengine.opendilab.org "cartpole" is too large: it may have 300000 fields and list items, those of the object that it replaces and of managedFields among them; shorten its lists"#;
    for review in [
        create(&heavy()),
        update(&good(), &heavy()),
        update(&heavy(), &good()),
    ] {
        let mutated = mutate(review.to_string().as_bytes()).unwrap();
        for response in [response(&mutated), validated(&review)] {
            assert_eq!(response["allowed"], false);
            let status = &response["status"];
            assert_eq!(
                (&status["code"], &status["message"]),
                (&json!(413), &json!(message))
            );
        }
    }
    let mut nameless = create(&heavy());
    nameless["request"]["name"] = json!("");
    nameless["request"]["object"]["metadata"] = json!({"generateName": "run-"});
    let response = validated(&nameless);
    assert_eq!(response["status"]["details"]["name"], "run-");
}

#[test]
fn whatever_is_in_it_it_may_go() {
    let mut going = heavy();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    let mut deletion = review("DIJob", "v1alpha2", "DELETE", &Value::Null);
    deletion["request"]["oldObject"] = heavy();
    for review in [deletion, update(&going, &going)] {
        assert_eq!(validated(&review)["allowed"], true);
        assert!(mutate(review.to_string().as_bytes()).unwrap().allowed);
    }
    let unstored = update(&heavy(), &going);
    assert_eq!(validated(&unstored)["allowed"], false);
}

#[test]
fn thousands_of_empty_items_are_told_by_their_number() {
    let mut job = good();
    job["spec"]["volumes"] = vec![json!({}); 80_000].into();
    for review in [create(&job), update(&good(), &job)] {
        assert_eq!(
            validated(&review)["status"]["message"],
            r#"DIJob.diengine.opendilab.org "cartpole" is invalid: spec.volumes: Too many: 80000: must have at most 1000 items"#
        );
    }
}

#[test]
fn an_honest_job_with_all_the_text_that_it_may_have_passes() {
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
    let mut job = job(&json!({
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
    for review in [create(&job), update(&job, &other)] {
        let response = validated(&review);
        assert_eq!(response["allowed"], true, "{}", response["status"]);
        assert!(mutate(review.to_string().as_bytes()).unwrap().allowed);
    }
}
