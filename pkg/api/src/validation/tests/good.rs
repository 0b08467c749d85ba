use super::*;

fn samples() -> Vec<(String, Value)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/samples");
    let files = std::fs::read_dir(dir).unwrap();
    files
        .map(|file| {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let object = serde_saphyr::from_str(&text).unwrap();
            (path.display().to_string(), object)
        })
        .collect()
}

#[test]
fn the_samples_pass_and_know_every_field() {
    let samples = samples();
    assert!(samples.len() >= 4);
    for (path, object) in samples {
        let kind = object["kind"].as_str().unwrap();
        assert_eq!(unknown::faults(kind, &object), [], "{path}");
        if kind == "DIJob" {
            let job = dijob(&object).unwrap_or_else(|f| panic!("{path}: {}", summary(&f)));
            assert_eq!(warnings(&job), [""; 0], "{path}");
        } else {
            aggregator_config(&object).unwrap_or_else(|f| panic!("{path}: {}", summary(&f)));
        }
    }
}

#[test]
fn good_jobs_pass() {
    let di = |more: Value| {
        let mut container = json!({"name": "di-container", "image": "i"});
        container
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"template": {"metadata": {"creationTimestamp": null, "labels": {"a": "b"}}, "spec": {"containers": [container]}}})
    };
    let shared = json!({"name": "v", "emptyDir": {}});
    for spec in [
        json!({"coordinator": di(json!({}))}),
        json!({"coordinator": di(json!({"resources": {}}))}),
        json!({"coordinator": di(json!({"resources": {"limits": {"cpu": 1, "memory": "1.5e9", "nvidia.com/gpu": 2}}}))}),
        json!({"coordinator": di(json!({"resources": {"requests": {"cpu": "1000m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1024Mi"}}}))}),
        json!({"coordinator": di(json!({"resources": {"requests": {"cpu": ".5"}, "limits": {"cpu": "5E-1", "hugepages-2Mi": "4Mi"}}}))}),
        json!({"coordinator": di(json!({"ports": [{"name": "di-port", "containerPort": 1}, {"containerPort": 1}, {"containerPort": 1, "protocol": "UDP"}]}))}),
        json!({"coordinator": di(json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]})), "volumes": [shared]}),
        json!({"coordinator": di(json!({"env": [{"name": "A.b-c", "value": ""}, {"name": "A.b-c"}]}))}),
        json!({"coordinator": di(json!({"securityContext": {"runAsUser": 0}, "livenessProbe": {"httpGet": {"port": "di-port"}}}))}),
        json!({"coordinator": di(json!({})), "cleanPodPolicy": "ALL", "group": "My_team.1", "priorityClassName": "system-node-critical"}),
        json!({"coordinator": di(json!({})), "cleanPodPolicy": "", "group": "", "priorityClassName": "", "suspend": true}),
        json!({"coordinator": di(json!({})), "collector": null, "learner": null, "ttlSecondsAfterFinished": 0, "activeDeadlineSeconds": 1}),
        json!({"coordinator": di(json!({})), "learner": {"template": di(json!({"resources": {"limits": {"nvidia.com/gpu": 4}}}))["template"], "replicas": 2,
            "groups": [{"name": "one", "replicas": 1, "resources": {"gpus": 1}}, {"name": "most", "resources": {"gpus": "1024"}}]}}),
        json!({"coordinator": di(json!({})), "collector": {"template": di(json!({"resources": {"limits": {"nvidia.com/gpu": 2000}}}))["template"]}}),
        json!({"coordinator": di(json!({})), "collector": {"template": di(json!({}))["template"], "replicas": 3,
            "groups": [{"name": "big", "replicas": 1, "resources": {"cpus": 2, "gpus": "1", "memory": "4Gi"}}, {"name": "1"}]}}),
    ] {
        for version in ["v1alpha1", "v1alpha2"] {
            let mut job = good();
            set(&mut job, "/spec", spec.clone());
            set(
                &mut job,
                "/apiVersion",
                json!(format!("diengine.opendilab.org/{version}")),
            );
            set(
                &mut job,
                "/status",
                json!({"phase": "Running", "whatever": 1}),
            );
            let before = job.clone();
            dijob(&job).unwrap_or_else(|faults| panic!("{spec}: {}", summary(&faults)));
            assert_eq!(job, before);
        }
    }
}

#[test]
fn a_template_may_bring_a_volume_of_the_same_name_as_the_jobs() {
    let mut job = good();
    set(
        &mut job,
        "/spec/volumes",
        json!([{"name": "v", "emptyDir": {}}]),
    );
    let pod = "/spec/coordinator/template/spec";
    set(
        &mut job,
        &format!("{pod}/volumes"),
        json!([{"name": "v", "emptyDir": {}}]),
    );
    set(
        &mut job,
        &format!("{pod}/initContainers"),
        json!([{"name": "init", "image": "i", "restartPolicy": "Always",
        "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]),
    );
    assert!(dijob(&job).is_ok());
}

/// As jobs for DI-engine were written for v0.2: numbers for quantities, resources twice, learners of several GPUs made on request.
#[test]
fn a_job_of_version_0_2_passes() {
    let role = |gpus: &str| {
        let amounts = format!("{{cpu: 3, memory: 10Gi{gpus}}}");
        format!(
            "{{template: {{spec: {{containers: [{{name: di-container, image: ding:v0.1.0, imagePullPolicy: Always, \
             env: [{{name: PYTHONUNBUFFERED, value: \"1\"}}], command: [/bin/bash, -c], args: [ding], \
             resources: {{requests: {amounts}, limits: {amounts}}}, ports: [{{name: di-port, containerPort: 80}}], \
             volumeMounts: [{{name: cache-volume, mountPath: /dev/shm}}]}}]}}}}}}"
        )
    };
    let text = format!(
        "apiVersion: diengine.opendilab.org/v1alpha1\n\
         kind: DIJob\n\
         metadata: {{name: qbert-dqn}}\n\
         spec:\n  \
           group: xxx\n  \
           priorityClassName: \"\"\n  \
           cleanPodPolicy: ALL\n  \
           volumes: [{{name: cache-volume, emptyDir: {{medium: Memory, sizeLimit: 128Mi}}}}]\n  \
           coordinator: {}\n  \
           collector: {}\n  \
           learner: {}\n",
        role(""),
        role(""),
        role(", nvidia.com/gpu: 2")
    );
    let object: Value = serde_saphyr::from_str(&text).unwrap();
    let job = dijob(&object).unwrap_or_else(|faults| panic!("{}", summary(&faults)));
    assert_eq!(warnings(&job), [""; 0]);
}
