use std::collections::BTreeSet;

use serde::Deserialize;

use super::{
    validate::{validate_decoded, validate_tolerantly},
    *,
};

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
fn samples_pass_without_warnings() {
    let samples = samples();
    assert!(samples.len() >= 8);
    for (path, object) in samples {
        let kind = object["kind"].as_str().unwrap();
        if kind == "DIJob" {
            let job = validate_dijob(&object)
                .unwrap_or_else(|f| panic!("{path}: {}", summarize_faults(&f)));
            assert!(job.unknown_pod_fields.is_empty(), "{path}");
            assert_eq!(job_warnings(&job.object), [""; 0], "{path}");
        } else {
            validate_aggregator_config(&object)
                .unwrap_or_else(|f| panic!("{path}: {}", summarize_faults(&f)));
        }
    }
}

fn sample(name: &str) -> Value {
    let file = format!("/{name}.yaml");
    let mut samples = samples().into_iter();
    samples.find(|(path, _)| path.ends_with(&file)).unwrap().1
}

/// Returns the strings of a list.
fn strings_of(list: &Value) -> Vec<&str> {
    let list = list.as_array().into_iter().flatten();
    list.map(|word| word.as_str().unwrap()).collect()
}

#[test]
fn sample_factory_knows_cores_saves_on_stop_and_resumes() {
    let spec = &sample("sample-factory")["spec"];
    // A restarted coordinator resumes from its checkpoint.
    assert!(spec["backoffLimit"].as_u64().unwrap() > 0);
    let pod = &spec["coordinator"]["template"]["spec"];
    let container = &pod["containers"][0];
    let args = strings_of(&container["args"]);
    assert!(args.contains(&"--restart_behavior=resume"));
    assert!(args.contains(&"--experiment=$(KUBERNETES_POD_NAME)"));

    assert!(args.contains(&"--num_workers=$(NUM_WORKERS)"));
    let cores = json!({"name": "NUM_WORKERS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}});
    assert!(container["env"].as_array().unwrap().contains(&cores));
    assert!(container["resources"]["limits"]["cpu"].is_string());

    // The signal reaches only process 1.
    assert_eq!(container["command"][0], "python");
    let stop = strings_of(&container["lifecycle"]["preStop"]["exec"]["command"]);
    let [_, "-c", line] = stop[..] else {
        panic!("{stop:?}");
    };
    assert!(line.starts_with("kill -INT 1; while kill -0 1; "), "{line}");
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() >= 60);
}

#[test]
fn srl_processes_share_two_volumes_and_are_numbered() {
    let spec = &sample("srl")["spec"];
    let names = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|item| item["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let volumes = names(&spec["volumes"]);
    assert_eq!(volumes, ["names", "parameters"]);
    for (role, programs) in [
        ("coordinator", &["controller"][..]),
        ("collector", &["actor"]),
        ("learner", &["trainer", "policy"]),
    ] {
        let containers = &spec[role]["template"]["spec"]["containers"];
        let containers = containers.as_array().unwrap();
        assert_eq!(containers.len(), programs.len(), "{role}");
        for (container, program) in containers.iter().zip(programs) {
            assert_eq!(names(&container["volumeMounts"]), volumes, "{program}");
            let args = strings_of(&container["args"]);
            assert!(args.contains(program), "{args:?}");
            let is_numbered = args
                .windows(2)
                .any(|two| two == ["-i", "$(DI_REPLICA_INDEX)"]);
            assert_eq!(is_numbered, role != "coordinator", "{program}");
        }
    }
}

/// Collects all strings of a key anywhere in an object.
fn collect_strings(key: &str, object: &Value, found: &mut BTreeSet<String>) {
    match object {
        Value::Object(fields) => {
            found.extend(fields.get(key).and_then(Value::as_str).map(str::to_owned));
            fields
                .values()
                .for_each(|field| collect_strings(key, field, found));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect_strings(key, item, found)),
        _ => {}
    }
}

#[test]
fn samples_page_links_samples_and_builds_their_images() {
    let page = include_str!("../../../../../docs/samples.md");
    // The released image of the reference workload.
    let worker = concat!("ghcr.io/opendilab/di-worker:v", env!("CARGO_PKG_VERSION"));
    let mut built = BTreeSet::from([worker.to_owned()]);
    let commands = page
        .lines()
        .filter(|line| line.starts_with("docker build "));
    built.extend(commands.map(|line| {
        let (_, image) = line.split_once(" -t ").unwrap();
        image.split(' ').next().unwrap().to_owned()
    }));
    let mut named = BTreeSet::new();
    for (path, object) in samples() {
        let (_, file) = path.rsplit_once('/').unwrap();
        let link = format!("[`{file}`](../manifests/samples/{file})");
        assert!(page.contains(&link), "{file}");
        collect_strings("image", &object, &mut named);
    }
    assert_eq!(built, named);
}

/// A job in the style of DI-engine v0.2: quantities are numbers, resources are given twice.
#[test]
fn job_of_version_0_2_passes() {
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
    let job =
        validate_dijob(&object).unwrap_or_else(|faults| panic!("{}", summarize_faults(&faults)));
    assert_eq!(job_warnings(&job.object), [""; 0]);
}

#[test]
fn strict_and_tolerant_decoding_find_same_faults() {
    for (path, object) in samples() {
        if object["kind"] != "DIJob" {
            continue;
        }
        for (place, value) in [
            ("/spec/suspend", json!(false)),
            ("/spec/cleanPodPolciy", json!("All")),
            ("/spec/zebra", json!(null)),
            ("/spec/backoffLimit", json!(-1)),
            (
                "/spec/coordinator/template/spec/contianers",
                json!([{"name": null}]),
            ),
            ("/zebra", json!({"deep": [1]})),
        ] {
            let mut changed = object.clone();
            set(&mut changed, place, value);
            let (_, strict) = validate_decoded(Decoded::<DIJob>::deserialize(&changed).unwrap());
            let (_, tolerant) = validate_tolerantly::<DIJob>(&changed);
            assert_eq!(strict, tolerant, "{path}: {place}");
        }
    }
}

/// serde alone would read the items of a list as the fields of a struct.
#[test]
fn list_in_place_of_object_is_rejected() {
    let mut job = valid_job();
    set(&mut job, "/spec/collector", json!([template(), 1]));
    let faults = validate_dijob(&job).unwrap_err();
    assert_eq!(faults[0].field, "spec.collector.template");
    set(
        &mut job,
        "/spec/collector",
        json!({"template": [], "replicas": 1}),
    );
    assert_eq!(validate_dijob(&job).unwrap_err(), faults);
}
