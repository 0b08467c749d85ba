use std::collections::BTreeSet;

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
    assert!(samples.len() >= 8);
    for (path, object) in samples {
        let kind = object["kind"].as_str().unwrap();
        if kind == "DIJob" {
            let job = dijob(&object).unwrap_or_else(|f| panic!("{path}: {}", summary(&f)));
            assert_eq!(warnings(&job), [""; 0], "{path}");
        } else {
            aggregator_config(&object).unwrap_or_else(|f| panic!("{path}: {}", summary(&f)));
        }
    }
}

fn sample(name: &str) -> Value {
    let file = format!("/{name}.yaml");
    let mut samples = samples().into_iter();
    samples.find(|(path, _)| path.ends_with(&file)).unwrap().1
}

/// The words of a list.
fn words(list: &Value) -> Vec<&str> {
    let list = list.as_array().into_iter().flatten();
    list.map(|word| word.as_str().unwrap()).collect()
}

#[test]
fn sample_factory_is_told_its_cores_saves_when_it_is_to_end_and_goes_on() {
    let spec = &sample("sample-factory")["spec"];
    // A checkpoint that is there is of use to one that is started again.
    assert!(spec["backoffLimit"].as_u64().unwrap() > 0);
    let pod = &spec["coordinator"]["template"]["spec"];
    let container = &pod["containers"][0];
    let args = words(&container["args"]);
    assert!(args.contains(&"--restart_behavior=resume"));
    assert!(args.contains(&"--experiment=$(KUBERNETES_POD_NAME)"));

    assert!(args.contains(&"--num_workers=$(NUM_WORKERS)"));
    let cores = json!({"name": "NUM_WORKERS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}});
    assert!(container["env"].as_array().unwrap().contains(&cores));
    assert!(container["resources"]["limits"]["cpu"].is_string());

    // Process 1 is the one that the signal reaches.
    assert_eq!(container["command"][0], "python");
    let stop = words(&container["lifecycle"]["preStop"]["exec"]["command"]);
    let [_, "-c", line] = stop[..] else {
        panic!("{stop:?}");
    };
    assert!(line.starts_with("kill -INT 1; while kill -0 1; "), "{line}");
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() >= 60);
}

#[test]
fn all_processes_of_srl_share_two_folders_and_have_numbers() {
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
            let args = words(&container["args"]);
            assert!(args.contains(program), "{args:?}");
            let is_numbered = args
                .windows(2)
                .any(|two| two == ["-i", "$(DI_REPLICA_INDEX)"]);
            assert_eq!(is_numbered, role != "coordinator", "{program}");
        }
    }
}

/// What a key has anywhere in an object.
fn texts_of(key: &str, object: &Value, found: &mut BTreeSet<String>) {
    match object {
        Value::Object(fields) => {
            found.extend(fields.get(key).and_then(Value::as_str).map(str::to_owned));
            fields
                .values()
                .for_each(|field| texts_of(key, field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| texts_of(key, item, found)),
        _ => {}
    }
}

#[test]
fn the_page_of_samples_has_each_of_them_and_builds_the_images_that_they_name() {
    let page = include_str!("../../../../../docs/samples.md");
    // That of the reference workload is made by make.
    let mut built = BTreeSet::from(["di-worker:dev".to_owned()]);
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
        texts_of("image", &object, &mut named);
    }
    assert_eq!(built, named);
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

#[test]
fn what_is_read_at_once_is_judged_as_what_is_read_piecemeal() {
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
            let (at_once, piecemeal) = (
                judge_read(Read::<DIJob>::deserialize(&changed).unwrap()),
                judge_piecemeal::<DIJob>(&changed),
            );
            assert_eq!(at_once, piecemeal, "{path}: {place}");
        }
    }
}

/// serde would take the items of a list for the fields of a struct.
#[test]
fn a_list_is_no_object() {
    let mut job = good();
    set(
        &mut job,
        "/spec/collector",
        json!([template("di-container"), 1]),
    );
    let faults = dijob(&job).unwrap_err();
    assert_eq!(faults[0].field, "spec.collector.template");
    set(
        &mut job,
        "/spec/collector",
        json!({"template": [], "replicas": 1}),
    );
    assert_eq!(dijob(&job).unwrap_err(), faults);
}
