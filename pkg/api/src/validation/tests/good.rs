use super::*;

fn samples() -> Vec<(String, Value)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/samples");
    let files = std::fs::read_dir(dir).unwrap();
    files
        .map(|file| file.unwrap().path())
        .filter(|path| !path.ends_with("kustomization.yaml"))
        .map(|path| {
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
