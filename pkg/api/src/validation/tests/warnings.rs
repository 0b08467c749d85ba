use super::*;

fn warnings_after(changes: &[(&str, Value)]) -> Vec<String> {
    let mut job = valid_job();
    for (path, value) in changes {
        set(&mut job, path, value.clone());
    }
    job_warnings(&validate_dijob(&job).unwrap().object)
}

#[test]
fn rarely_intended_job_fields_are_warned_about() {
    let container = |env: &str| json!([{"name": "di-container", "image": "i", "env": [{"name": "A"}, {"name": env}]}]);
    assert_eq!(warnings_after(&[]), [""; 0]);
    let coordinator = "/spec/coordinator/template/spec";
    for (path, value, expected) in [
        (
            "/spec/ttlSecondsAfterFinished",
            json!(0),
            "spec.ttlSecondsAfterFinished: 0 deletes the job, its pods and their logs as soon as it ends",
        ),
        (
            "/spec/coordinator/template/spec/restartPolicy",
            json!("Always"),
            "spec.coordinator.template.spec.restartPolicy: with Always, the kubelet restarts the coordinator after every exit, so the job never ends",
        ),
        (
            "/spec/collector/template/metadata",
            json!({"labels": {"team": "rl", "replica-type": "learner"}}),
            "spec.collector.template.metadata.labels: replica-type is set by the orchestrator, this value is ignored",
        ),
        (
            "/spec/collector/template/spec/hostNetwork",
            json!(true),
            "spec.collector.template.spec.hostNetwork: all replicas of a role use the same port, so no two of them can run on the same node",
        ),
        (
            "/spec/collector/template/spec/containers",
            container("COLLECTOR_PORT"),
            "spec.collector.template.spec.containers[0].env[1]: COLLECTOR_PORT is set by the orchestrator, this value overrides it",
        ),
        (
            "/spec/collector/template/spec/initContainers",
            json!([{"name": "i", "image": "i", "env": [{"name": "KUBERNETES_POD_NAME"}]}]),
            "spec.collector.template.spec.initContainers[0].env[0]: KUBERNETES_POD_NAME is set by the orchestrator, this value overrides it",
        ),
        (
            "/spec/learner",
            json!({"template": {"spec": {"containers": container("WORLD_SIZE")}}}),
            "spec.learner.template.spec.containers[0].env[1]: WORLD_SIZE is set by the orchestrator, this value overrides it",
        ),
    ] {
        assert_eq!(warnings_after(&[(path, value)]), [expected]);
    }
    let none = ("/spec/cleanPodPolicy", json!("None"));
    let always = (
        "/spec/collector/template/spec/restartPolicy",
        json!("Always"),
    );
    assert_eq!(
        warnings_after(&[none, always.clone()]),
        [
            "spec.collector.template.spec.restartPolicy: with Always and spec.cleanPodPolicy None, the pods keep running after the end of the job"
        ]
    );
    assert_eq!(warnings_after(std::slice::from_ref(&always)), [""; 0]);
    let codes = json!({"operator": "In", "values": [2]});
    let rules = json!([{"roles": ["collector"], "onExitCodes": codes}]);
    assert_eq!(
        warnings_after(&[always, ("/spec/failureRules", rules)]),
        [
            "spec.collector.template.spec.restartPolicy: with Always, the kubelet restarts failed containers, so spec.failureRules[0].onExitCodes does not match; set it to Never"
        ]
    );
    // Variables of other roles.
    for name in ["WORLD_SIZE", "DI_REPLICA_INDEX", "COLLECTOR_PORT"] {
        let place = format!("{coordinator}/containers");
        assert_eq!(
            warnings_after(&[(&place, container(name))]),
            [""; 0],
            "{name}"
        );
    }
}

#[test]
fn rarely_intended_config_fields_are_warned_about() {
    let warnings_after = |path: &str, value: Value| {
        let mut config = json!({
            "metadata": {"name": "aggregator-config"},
            "spec": {"aggregator": {"template": template()}},
        });
        set(&mut config, path, value);
        config_warnings(&validate_aggregator_config(&config).unwrap().object)
    };
    let container =
        json!([{"name": "di-container", "image": "i", "env": [{"name": "AGGREGATOR_PORT"}]}]);
    assert_eq!(
        warnings_after("/metadata/labels", json!({"a": "b"})),
        [""; 0]
    );
    for (path, value, expected) in [
        (
            "/metadata/name",
            json!("aggregators"),
            "metadata.name: only an AggregatorConfig named aggregator-config is used",
        ),
        (
            "/spec/aggregator/template/spec/containers",
            container,
            "spec.aggregator.template.spec.containers[0].env[0]: AGGREGATOR_PORT is set by the orchestrator, this value overrides it",
        ),
        (
            "/spec/aggregator/template/spec/hostNetwork",
            json!(true),
            "spec.aggregator.template.spec.hostNetwork: all replicas of a role use the same port, so no two of them can run on the same node",
        ),
    ] {
        assert_eq!(warnings_after(path, value), [expected]);
    }
}

#[test]
fn fields_without_effect_in_queue_are_warned_about() {
    let queueing = ("/spec/queueing", json!({"elastic": "Whole"}));
    let growth = json!({"factor": "1.5", "limit": "4Gi"});
    let rules = json!([
        {"onReasons": ["Evicted"]},
        {"onReasons": ["OOMKilled"], "growMemory": growth},
    ]);
    let rules = ("/spec/failureRules", rules);
    let queue = "kueue.x-k8s.io/queue-name";
    let unqueued = format!("spec.queueing has no effect without the label {queue}");
    let growth = "spec.failureRules[1].growMemory has no effect in a queue: the quota of an admitted pod is fixed";
    for (label, expected) in [("", unqueued.as_str()), ("team-a", growth)] {
        let labels = ("/metadata/labels", json!({queue: label}));
        let changes = [labels, queueing.clone(), rules.clone()];
        assert_eq!(warnings_after(&changes), [expected], "{label}");
    }
    assert_eq!(warnings_after(std::slice::from_ref(&rules)), [""; 0]);
}

#[test]
fn scheduling_without_gang_is_warned_about() {
    let queue = "spec.scheduling.queue has no effect without spec.scheduling.gang";
    let key = "spec.scheduling.topologyKey has no effect without spec.scheduling.gang";
    for (scheduling, expected) in [
        (
            json!({"queue": "a", "topologyKey": "rack"}),
            vec![queue, key],
        ),
        (
            json!({"queue": "a", "topologyKey": "rack", "gang": {}}),
            vec![],
        ),
        (json!({}), vec![]),
    ] {
        let changes = [("/spec/scheduling", scheduling.clone())];
        assert_eq!(warnings_after(&changes), expected, "{scheduling}");
    }
}

#[test]
fn memory_without_intended_unit_is_warned_about() {
    for (amount, expected) in [
        (
            json!("512m"),
            "fractional byte value \"512m\" is invalid, must be an integer",
        ),
        (
            json!(10),
            "10 is too little for any container, is a unit missing?",
        ),
    ] {
        for (place, field) in [
            ("containers", "containers[0].resources.limits[memory]"),
            (
                "initContainers",
                "initContainers[0].resources.limits[memory]",
            ),
        ] {
            let name = if place == "containers" {
                "di-container"
            } else {
                "init"
            };
            let container =
                json!({"name": name, "image": "i", "resources": {"limits": {"memory": amount}}});
            let place = format!("/spec/coordinator/template/spec/{place}");
            assert_eq!(
                warnings_after(&[(&place, json!([container]))]),
                [format!(
                    "spec.coordinator.template.spec.{field}: {expected}"
                )]
            );
        }
    }
}

#[test]
fn preemption_policy_with_class_of_job_is_ignored() {
    let place = "/spec/collector/template/spec/preemptionPolicy";
    let class = ("/spec/priorityClassName", json!("high"));
    let default = (place, json!("PreemptLowerPriority"));
    assert_eq!(warnings_after(&[class.clone(), default]), [""; 0]);
    let never = (place, json!("Never"));
    assert_eq!(
        warnings_after(&[class.clone(), never.clone()]),
        [
            "spec.collector.template.spec.preemptionPolicy: Never is ignored, the pod gets the policy of the PriorityClass high"
        ]
    );
    assert_eq!(warnings_after(std::slice::from_ref(&never)), [""; 0]);
    let own = (
        "/spec/collector/template/spec/priorityClassName",
        json!("own"),
    );
    assert_eq!(warnings_after(&[class, never, own]), [""; 0]);
}
