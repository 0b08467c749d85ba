//! The sample in Python: the package of this checkout, in pods with PyTorch.

use std::{collections::BTreeMap, path::Path};

use di_api::DIJob;
use di_e2e::{
    Namespace, ReplicaStates, eventually, kubectl_di, logs_so_far, main_container, replica_states,
    samples, send_http,
};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::training::{wait_for_samples, wait_until_solved};

const SAMPLE: &str = include_str!("../../../../manifests/samples/pytorch.yaml");
const JOB: &str = "cartpole-pytorch";
const COORDINATOR: &str = "cartpole-pytorch-coordinator";
/// Port of the coordinator.
const PORT: u16 = 22273;
/// The image of `tests/di-engine` has PyTorch too.
const IMAGE: &str = "di-engine-client:dev";

/// Creates a ConfigMap with the program and the package, and returns its volume.
async fn create_sources(ns: &Namespace) -> Value {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let mut files = vec![("cartpole.py".to_owned(), python.join("samples/cartpole.py"))];
    for file in std::fs::read_dir(python.join("src/di_orchestrator")).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "py") {
            let name = file.file_name().unwrap().to_str().unwrap();
            files.push((format!("di_orchestrator/{name}"), file));
        }
    }
    // A key has no slash.
    let key = |path: &str| path.replace('/', ".");
    let mut data = BTreeMap::new();
    let mut items = Vec::new();
    for (path, file) in &files {
        data.insert(key(path), std::fs::read_to_string(file).unwrap());
        items.push(json!({"key": key(path), "path": path}));
    }
    let sources = json!({"metadata": {"name": "sources"}, "data": data});
    let sources: ConfigMap = serde_json::from_value(sources).unwrap();
    let new = PostParams::default();
    ns.api().create(&new, &sources).await.unwrap();
    json!({"name": "sources", "configMap": {"name": "sources", "items": items}})
}

/// Returns the sample with the image of the tests. Its training does not end: no return is higher
/// than 500.
async fn endless_sample(ns: &Namespace) -> DIJob {
    let mut job: DIJob = serde_saphyr::from_str(SAMPLE).unwrap();
    let sources = create_sources(ns).await;
    let spec = &mut job.spec;
    spec.volumes = serde_json::from_value(json!([sources])).unwrap();
    for template in [
        &mut spec.coordinator.template,
        &mut spec.collector.as_mut().unwrap().template,
        &mut spec.learner.as_mut().unwrap().template,
    ] {
        let main = main_container(template);
        main["image"] = json!(IMAGE);
        main["volumeMounts"] = json!([{"name": "sources", "mountPath": "/samples"}]);
    }
    main_container(&mut spec.coordinator.template)["args"][1] = json!("501");
    job
}

/// Runs a command of the plugin that must succeed.
async fn run_di(ns: &Namespace, args: &[&str]) {
    let output = kubectl_di(ns, args).await;
    assert_eq!(output.code, Some(0), "{args:?}: {output:?}");
}

/// Waits until the coordinator, three collectors and the learner respond.
async fn wait_for_states(ns: &Namespace) -> ReplicaStates {
    let all = |states: &ReplicaStates| states.len() == 5;
    eventually("all respond", || replica_states(ns, JOB), all).await
}

#[tokio::test]
async fn pytorch_sample_scales_pauses_and_is_solved() {
    Namespace::with("python", |ns| async move {
        ns.submit(&endless_sample(&ns).await).await;
        let first = wait_for_samples(&ns, JOB, 4).await;

        run_di(&ns, &["replicas", "add", JOB, "--collectors=1", "--wait"]).await;
        // A collector plays only for the learner, which gets its address from the coordinator.
        let all = wait_for_samples(&ns, JOB, 5).await;
        let mut names = all.keys();
        let new = names.find(|name| !first.contains_key(*name)).unwrap();
        let joined = format!("{new}.{}:22270 joined", ns.name);
        let log = || logs_so_far(&ns, COORDINATOR);
        eventually("in the log", log, |log| log.contains(&joined)).await;

        run_di(&ns, &["pause", JOB]).await;
        let paused = wait_for_states(&ns).await;
        let mut statuses = paused.values().map(|(status, _)| status);
        assert!(statuses.all(|status| status == "paused"), "{paused:?}");
        assert_eq!(wait_for_states(&ns).await, paused, "nothing changes");
        run_di(&ns, &["start", JOB]).await;
        let has_more = |states: &ReplicaStates| {
            let mut names = paused.keys();
            names.all(|name| samples(states, name) > samples(&paused, name))
        };
        eventually("resumed", || replica_states(&ns, JOB), has_more).await;

        let target = json!({"target_return": 475});
        for (call, body) in [
            ("pause", &json!({})),
            ("configure", &target),
            ("start", &json!({})),
        ] {
            let (pods, path) = (ns.api::<Pod>(), format!("/lifecycle/{call}"));
            let reply = send_http(&pods, COORDINATOR, PORT, "POST", &path, None, body).await;
            let reply = reply.expect("a response");
            assert_eq!(reply.status, 200, "{call}: {reply:?}");
        }
        wait_until_solved(&ns, JOB).await;
    })
    .await;
}
