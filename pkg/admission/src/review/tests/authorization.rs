use super::*;

#[test]
fn denied_author_gets_hint_for_missing_permission() {
    let mut config = review_of("AggregatorConfig", "v1alpha2", "CREATE", &valid_config());
    config["request"]["namespace"] = json!(names::SYSTEM_NAMESPACE);
    let cases = [
        (
            create_review(&valid_job()),
            Some("rl"),
            r#"dijobs.diengine.opendilab.org "cartpole" is forbidden: User "ann" cannot create resource "pods" in API group "" in the namespace "rl": the orchestrator creates pods from its templates, so their author needs this permission; ask for a Role in the namespace "rl" that allows creating pods"#,
        ),
        (
            config,
            None,
            r#"aggregatorconfigs.diengine.opendilab.org "cartpole" is forbidden: User "ann" cannot create resource "pods" in API group "" at the cluster scope: the orchestrator creates pods from its templates, so their author needs this permission; ask for a ClusterRole that allows creating pods in all namespaces, because jobs in all namespaces use the AggregatorConfig in di-system; or create an AggregatorConfig in the namespace of your jobs"#,
        ),
    ];
    for (review, namespace, message) in cases {
        let ReviewOutcome::NeedsAuthorization(check) = outcome_of(&review) else {
            panic!("no authorization needed");
        };
        let query = check.access_query().to_access_review().spec;
        assert_eq!(query.user.as_deref(), Some("ann"));
        assert_eq!(query.uid.as_deref(), Some("7"));
        assert_eq!(query.groups.unwrap(), ["system:authenticated"]);
        assert_eq!(query.extra.unwrap()["scopes"], ["a", "b"]);
        let attributes = query.resource_attributes.unwrap();
        assert_eq!(attributes.namespace.as_deref(), namespace);
        assert_eq!(
            (
                attributes.verb.as_deref(),
                attributes.resource.as_deref(),
                attributes.group
            ),
            (Some("create"), Some("pods"), None)
        );

        let denied = response_json(&check.deny_response().unwrap());
        let status = &denied["status"];
        assert_eq!(
            (&denied["allowed"], &status["code"], &status["reason"]),
            (&json!(false), &json!(403), &json!("Forbidden"))
        );
        assert_eq!(status["message"], message);

        let failed = response_json(&check.error_response().unwrap());
        let status = &failed["status"];
        assert_eq!(
            (&failed["allowed"], &status["code"], &status["reason"]),
            (&json!(false), &json!(503), &json!("ServiceUnavailable"))
        );
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
        let message = status["message"].as_str().unwrap();
        assert!(
            message.contains(r#"whether User "ann" may create pods"#),
            "{message}"
        );
    }
}

#[test]
fn authorization_is_skipped_without_template_change() {
    let mut scaled = valid_job();
    scaled["spec"]["suspend"] = json!(true);
    for review in [
        create_review(&job_with_spec(&json!({}))),
        update_review(&valid_job(), &valid_job()),
        update_review(&valid_job(), &scaled),
        review_of("DIJob", "v1alpha2", "DELETE", &Value::Null),
        review_of("Pod", "v1", "CREATE", &valid_job()),
    ] {
        assert!(
            matches!(outcome_of(&review), ReviewOutcome::Final(_)),
            "{review}"
        );
    }
    let mut other = valid_job();
    other["spec"]["coordinator"]["template"]["spec"]["hostNetwork"] = json!(true);
    for review in [
        create_review(&valid_job()),
        update_review(&valid_job(), &other),
    ] {
        assert!(
            matches!(outcome_of(&review), ReviewOutcome::NeedsAuthorization(_)),
            "{review}"
        );
    }
}
