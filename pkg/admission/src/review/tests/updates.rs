use super::*;

#[test]
fn what_a_started_job_runs_is_not_changed() {
    let mut old = good();
    old["status"] = json!({"phase": "Running"});
    let mut new = old.clone();
    new["spec"]["coordinator"]["template"]["spec"]["containers"][0]["image"] = json!("other");
    let response = validated(&update(&old, &new));
    assert_eq!(response["allowed"], false);
    assert_eq!(
        response["status"]["details"]["causes"][0],
        json!({
            "reason": "FieldValueForbidden",
            "field": "spec.coordinator.template",
            "message": "Forbidden: may not be changed once the job has started; suspend it and wait for its phase Suspended, or create a new job",
        })
    );
    new = old.clone();
    new["spec"]["suspend"] = json!(true);
    assert_eq!(validated(&update(&old, &new))["allowed"], true);
}

#[test]
fn an_invalid_spec_that_stays_holds_nothing_up() {
    for spec in [
        json!({"cleanPodPolicy": "Sometimes"}),
        json!({"coordinator": {"template": {"spec": 3}}}),
        json!(null),
    ] {
        let old = job(&spec);
        let mut new = old.clone();
        new["metadata"]["labels"] = json!({"team": "rl"});
        for kind in ["DIJob", "AggregatorConfig"] {
            let mut review = update(&old, &new);
            review["request"]["kind"]["kind"] = json!(kind);
            let response = validated(&review);
            assert_eq!(response["allowed"], true, "{response}");
        }
    }
}

#[test]
fn a_configuration_may_change_to_whatever_is_fine_at_any_time() {
    let config = |image: &str| {
        json!({
            "metadata": {"name": "aggregator-config"},
            "spec": {"aggregator": {"template": {"spec": {"containers": [{"name": "di-container", "image": image}]}}}},
        })
    };
    let with = |mut config: Value, place: &str, value: Value| {
        let (parent, name) = place.rsplit_once('/').unwrap();
        config.pointer_mut(parent).unwrap()[name] = value;
        config
    };
    let good = || config("a");
    let labelled = |config| with(config, "/metadata/labels", json!({"team": "rl"}));
    let bad = || config("");
    let unknown = || with(good(), "/spec/aggregator/tempalte", json!({}));
    let going = |config| {
        with(
            config,
            "/metadata/deletionTimestamp",
            json!("2026-01-02T03:04:05Z"),
        )
    };
    // From, to, whether it may be, whether that takes the right to create pods.
    for (old, new, allowed, asked) in [
        (good(), good(), true, false),
        (good(), labelled(good()), true, false),
        (good(), config("b"), true, true),
        (bad(), good(), true, true),
        (unknown(), good(), true, true),
        (good(), bad(), false, false),
        (good(), unknown(), false, false),
        (good(), with(good(), "/spec", json!(null)), false, false),
        (
            good(),
            with(good(), "/spec/aggregator", json!({})),
            false,
            false,
        ),
        (bad(), labelled(bad()), true, false),
        (bad(), unknown(), false, false),
        (going(good()), going(bad()), true, false),
        (good(), going(bad()), false, false),
    ] {
        let mut review = update(&old, &new);
        review["request"]["kind"]["kind"] = json!("AggregatorConfig");
        let judgement = judged(&review);
        assert_eq!(
            matches!(judgement, Judgement::Claimed(_)),
            asked,
            "{review}"
        );
        assert_eq!(granted(judgement).allowed, allowed, "{review}");
    }
}
