use super::*;

#[test]
fn who_may_not_create_pods_is_told_what_to_ask_for() {
    let mut config = review(
        "AggregatorConfig",
        "v1alpha2",
        "CREATE",
        &json!({
            "metadata": {"name": "aggregator-config"},
            "spec": {"aggregator": {"template": template()}},
        }),
    );
    config["request"]["namespace"] = json!(names::SYSTEM_NAMESPACE);
    let cases = [
        (
            create(&good()),
            Some("rl"),
            r#"dijobs.diengine.opendilab.org "cartpole" is forbidden: User "ann" cannot create resource "pods" in API group "" in the namespace "rl": the orchestrator makes pods of its templates, so whoever sets them needs that right; ask for a Role in the namespace "rl" that allows to create pods"#,
        ),
        (
            config,
            None,
            r#"aggregatorconfigs.diengine.opendilab.org "cartpole" is forbidden: User "ann" cannot create resource "pods" in API group "" at the cluster scope: the orchestrator makes pods of its templates, so whoever sets them needs that right; ask for a ClusterRole that allows to create pods in all namespaces, as administrators have, because jobs of all namespaces use what is in di-system; or make your own in the namespace of your jobs"#,
        ),
    ];
    for (review, namespace, message) in cases {
        let Judgement::Claimed(claim) = judged(&review) else {
            panic!("anybody could run it");
        };
        let question = claim.question().review().spec;
        assert_eq!(question.user.as_deref(), Some("ann"));
        assert_eq!(question.uid.as_deref(), Some("7"));
        assert_eq!(question.groups.unwrap(), ["system:authenticated"]);
        assert_eq!(question.extra.unwrap()["scopes"], ["a", "b"]);
        let asked = question.resource_attributes.unwrap();
        assert_eq!(asked.namespace.as_deref(), namespace);
        assert_eq!(
            (
                asked.verb.as_deref(),
                asked.resource.as_deref(),
                asked.group
            ),
            (Some("create"), Some("pods"), None)
        );

        let refused = response(&claim.refused().unwrap());
        let status = &refused["status"];
        assert_eq!(
            (&refused["allowed"], &status["code"], &status["reason"]),
            (&json!(false), &json!(403), &json!("Forbidden"))
        );
        assert_eq!(status["message"], message);

        let undecided = response(&claim.undecided().unwrap());
        let status = &undecided["status"];
        assert_eq!(
            (&undecided["allowed"], &status["code"], &status["reason"]),
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
fn nobody_is_asked_about_what_is_refused_anyway_or_runs_nothing_new() {
    let mut scaled = good();
    scaled["spec"]["suspend"] = json!(true);
    for review in [
        create(&job(&json!({}))),
        update(&good(), &good()),
        update(&good(), &scaled),
        review("DIJob", "v1alpha2", "DELETE", &Value::Null),
        review("Pod", "v1", "CREATE", &good()),
    ] {
        assert!(matches!(judged(&review), Judgement::Final(_)), "{review}");
    }
    let mut other = good();
    other["spec"]["coordinator"]["template"]["spec"]["hostNetwork"] = json!(true);
    for review in [create(&good()), update(&good(), &other)] {
        assert!(matches!(judged(&review), Judgement::Claimed(_)), "{review}");
    }
}
