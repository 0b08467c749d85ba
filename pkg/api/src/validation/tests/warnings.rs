use super::*;

fn warnings_after(changes: &[(&str, Value)]) -> Vec<String> {
    let mut job = valid_job();
    for (path, value) in changes {
        set(&mut job, path, value.clone());
    }
    job_warnings(&validate_dijob(&job).unwrap())
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
    assert_eq!(warnings_after(&[always]), [""; 0]);
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
        config_warnings(&validate_aggregator_config(&config).unwrap())
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

const COORDINATOR: &str = "spec.coordinator.template.spec";

/// Returns the main container with additional fields.
fn container(more: Value) -> Value {
    let mut container = json!({"name": "di-container", "image": "i"});
    let Value::Object(more) = more else {
        panic!("{more} is not an object");
    };
    container.as_object_mut().unwrap().extend(more);
    json!([container])
}

/// Asserts the warning for each field of the coordinator's pod.
fn assert_pod_warnings(parts: &[(&str, Value, &str)]) {
    for (part, value, expected) in parts {
        let place = format!("/spec/coordinator/template/spec/{part}");
        assert_eq!(
            warnings_after(&[(&place, value.clone())]),
            [format!("{COORDINATOR}.{expected}")]
        );
    }
}

#[test]
fn fields_rejected_by_some_nodes_are_warned_about() {
    let limits = |limits: Value| container(json!({"resources": {"limits": limits}}));
    assert_pod_warnings(&[
        (
            "containers",
            container(json!({"restartPolicy": "Never"})),
            "containers[0].restartPolicy: Kubernetes before 1.35 ignores or rejects Never here and supports only the policy of the pod",
        ),
        (
            "initContainers",
            json!([{"name": "i", "image": "i", "restartPolicy": "OnFailure"}]),
            "initContainers[0].restartPolicy: Kubernetes before 1.35 ignores or rejects OnFailure here and supports only Always",
        ),
        (
            "containers",
            limits(json!({"memory": "512m"})),
            "containers[0].resources.limits[memory]: fractional byte value \"512m\" is invalid, must be an integer",
        ),
        (
            "containers",
            limits(json!({"memory": 10})),
            "containers[0].resources.limits[memory]: 10 is too little for any container, is a unit missing?",
        ),
        (
            "initContainers",
            json!([{"name": "i", "image": "i", "restartPolicy": "Always", "restartPolicyRules": [
                {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0]}},
            ]}]),
            "initContainers[0].restartPolicyRules: Kubernetes before 1.35 ignores or rejects these rules",
        ),
        (
            "tolerations",
            json!([{"key": "spot", "operator": "Lt", "value": "-5"}]),
            "tolerations[0].operator: Kubernetes before 1.35 rejects Lt; newer versions reject it unless the feature gate TaintTolerationComparisonOperators is enabled",
        ),
        (
            "securityContext",
            json!({"sysctls": [{"name": "net.core.somaxconn", "value": "1024"}]}),
            "securityContext.sysctls[0].name: net.core.somaxconn is not among the safe sysctls: only a kubelet that is configured to allow it runs the pod",
        ),
        (
            "schedulingGates",
            json!([{"name": "example.com/quota"}]),
            "schedulingGates[0]: no pod is scheduled until example.com/quota is removed from it",
        ),
    ]);
}

#[test]
fn fields_of_newer_servers_are_warned_about() {
    let from = |source: Value| container(json!({"env": [{"name": "A", "valueFrom": source}]}));
    assert_pod_warnings(&[
        (
            "initContainers",
            json!([{"name": "i", "image": "i", "restartPolicy": "Always", "livenessProbe": {
                "exec": {"command": ["true"]},
            }}]),
            "initContainers[0]: Kubernetes before 1.29 rejects probes and hooks of init containers",
        ),
        (
            "containers",
            container(json!({"readinessProbe": {"grpc": {"port": 1}}})),
            "containers[0].readinessProbe.grpc: Kubernetes before 1.24 rejects it",
        ),
        (
            "containers",
            container(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}})),
            "containers[0].lifecycle.preStop.sleep: Kubernetes before 1.30 rejects it",
        ),
        (
            "containers",
            from(json!({"fieldRef": {"fieldPath": "status.hostIPs"}})),
            "containers[0].env[0].valueFrom.fieldRef.fieldPath: Kubernetes before 1.29 rejects status.hostIPs",
        ),
        (
            "containers",
            from(json!({"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}})),
            "containers[0].env[0].valueFrom.fileKeyRef: Kubernetes before 1.35 rejects it unless the feature gate EnvFiles is enabled",
        ),
        (
            "volumes",
            json!([{"name": "v", "image": {"reference": "i"}}]),
            "volumes[0].image: Kubernetes before 1.35 rejects it unless the feature gate ImageVolume is enabled",
        ),
        (
            "volumes",
            json!([{"name": "v", "projected": {"sources": [
                {"clusterTrustBundle": {"name": "ca", "path": "ca.pem"}},
            ]}}]),
            "volumes[0].projected.sources[0].clusterTrustBundle: Kubernetes rejects it unless the feature gate ClusterTrustBundleProjection is enabled, which is rare",
        ),
        (
            "volumes",
            json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            }}}}]),
            "volumes[0].ephemeral: Kubernetes before 1.21 rejects it",
        ),
        (
            "dnsConfig",
            json!({"searches": ["a", "b", "c", "d", "e", "f", "g"]}),
            "dnsConfig.searches: Kubernetes before 1.26 rejects more than 6 search domains, and more than 256 characters in total",
        ),
        (
            "dnsConfig",
            json!({"searches": vec!["a".repeat(63); 5]}),
            "dnsConfig.searches: Kubernetes before 1.26 rejects more than 6 search domains, and more than 256 characters in total",
        ),
        (
            "securityContext",
            json!({"sysctls": [{"name": "kernel/shm_rmid_forced", "value": "1"}]}),
            "securityContext.sysctls[0].name: Kubernetes before 1.25 rejects kernel/shm_rmid_forced because of its slashes",
        ),
        (
            "volumes",
            json!([{"name": "v", "downwardAPI": {"items": [{"path": "p", "resourceFieldRef": {
                "containerName": "di-container", "resource": "limits.hugepages-2Mi",
            }}]}}]),
            "volumes[0].downwardAPI.items[0].resourceFieldRef.resource: Kubernetes before 1.22 rejects limits.hugepages-2Mi",
        ),
        (
            "dnsConfig",
            json!({"searches": ["rl.svc.cluster.local", "."]}),
            "dnsConfig.searches[1]: Kubernetes before 1.33 rejects .",
        ),
    ]);
    let volumes = json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {
        "accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}},
    }}}}]);
    assert_eq!(
        warnings_after(&[("/spec/volumes", volumes)]),
        [
            "spec.volumes[0].ephemeral: Kubernetes before 1.21 rejects it",
            "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.accessModes: Kubernetes before 1.27 rejects ReadWriteOncePod",
        ]
    );
    let os = format!("/{}/os", COORDINATOR.replace('.', "/"));
    let containers = format!("/{}/containers", COORDINATOR.replace('.', "/"));
    let signal = container(json!({"lifecycle": {"stopSignal": "SIGUSR1"}}));
    assert_eq!(
        warnings_after(&[(&os, json!({"name": "linux"})), (&containers, signal)]),
        [format!(
            "{COORDINATOR}.containers[0].lifecycle.stopSignal: Kubernetes ignores it unless the feature gate ContainerStopSignals is enabled, which is rare"
        )]
    );
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
    assert_eq!(
        warnings_after(std::slice::from_ref(&never)),
        [
            "spec.collector.template.spec.preemptionPolicy: the API server rejects pods with Never unless the default PriorityClass has it too; use a PriorityClass with preemptionPolicy Never"
        ]
    );
    let own = (
        "/spec/collector/template/spec/priorityClassName",
        json!("own"),
    );
    assert_eq!(warnings_after(&[class, never, own]), [""; 0]);
}
