//! The samples in Python: the package of this checkout, in pods with PyTorch.

use std::{collections::BTreeMap, path::Path};

use di_api::{DIJob, Phase, PodTemplate};
use di_e2e::{
    Namespace, ReplicaStates, eventually, kubectl_di, logs, logs_so_far, main_container,
    owned_pods, replica_states, samples, send_http, wait_for_phase,
};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{ResourceExt, api::PostParams};
use serde_json::{Value, json};

use crate::training::{wait_for_samples, wait_until_solved};

const SAMPLE: &str = include_str!("../../../../manifests/samples/pytorch.yaml");
const TORCHRUN: &str = include_str!("../../../../manifests/samples/torchrun.yaml");
const ROLLOUT_SERVER: &str = include_str!("../../../../manifests/samples/rollout-server.yaml");
const JOB: &str = "cartpole-pytorch";
const COORDINATOR: &str = "cartpole-pytorch-coordinator";
/// Port of the coordinator.
const PORT: u16 = 22273;
/// The image of `tests/di-engine` has PyTorch too.
const IMAGE: &str = "di-engine-client:dev";

/// Creates a ConfigMap with the programs and the package, and returns its volume.
async fn create_sources(ns: &Namespace) -> Value {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let mut files = Vec::new();
    for (folder, prefix) in [("samples", ""), ("src/di_orchestrator", "di_orchestrator/")] {
        for file in std::fs::read_dir(python.join(folder)).unwrap() {
            let file = file.unwrap().path();
            if file.extension().is_some_and(|extension| extension == "py") {
                let name = file.file_name().unwrap().to_str().unwrap();
                files.push((format!("{prefix}{name}"), file));
            }
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

/// Mounts the programs into the main container of a template, which gets the image of the tests.
fn use_sources(template: &mut PodTemplate) {
    let main = main_container(template);
    main["image"] = json!(IMAGE);
    let mut mounts = main["volumeMounts"].as_array().cloned().unwrap_or_default();
    mounts.push(json!({"name": "sources", "mountPath": "/samples"}));
    main["volumeMounts"] = mounts.into();
}

/// Returns a sample with the image of the tests.
async fn sample(ns: &Namespace, manifest: &str) -> DIJob {
    let mut job: DIJob = serde_saphyr::from_str(manifest).unwrap();
    let sources = create_sources(ns).await;
    let spec = &mut job.spec;
    spec.volumes.push(serde_json::from_value(sources).unwrap());
    use_sources(&mut spec.coordinator.template);
    if let Some(collector) = &mut spec.collector {
        use_sources(&mut collector.template);
        let unit = collector.unit.as_mut();
        if let Some(leader) = unit.and_then(|unit| unit.leader_template.as_mut()) {
            use_sources(leader);
        }
    }
    if let Some(learner) = &mut spec.learner {
        use_sources(&mut learner.template);
    }
    job
}

/// Returns the sample of PyTorch. Its training does not end: no return is higher than 500.
async fn endless_sample(ns: &Namespace) -> DIJob {
    let mut job = sample(ns, SAMPLE).await;
    main_container(&mut job.spec.coordinator.template)["args"][1] = json!("501");
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

#[tokio::test]
async fn torchrun_sample_adds_up_over_two_pods_of_a_unit() {
    Namespace::with("torchrun", |ns| async move {
        ns.submit(&sample(&ns, TORCHRUN).await).await;
        wait_for_phase(&ns, "torchrun", Phase::Succeeded).await;
        let log = logs(&ns, "torchrun-coordinator").await;
        assert!(log.contains("the sum of 2 pods is 3"), "{log}");
        let pods = owned_pods(&ns, "torchrun").await;
        let replaced = pods
            .iter()
            .filter(|pod| pod.labels().contains_key("unit-name"));
        assert!(replaced.count() <= 2, "no pod has failed");
    })
    .await;
}

/// The coordinator logs each list of engines with its generation. The names of engines are those of
/// their first pods.
#[tokio::test]
async fn rollout_server_sample_replaces_hung_engine() {
    Namespace::with("rollout", |ns| async move {
        ns.submit(&sample(&ns, ROLLOUT_SERVER).await).await;
        wait_for_phase(&ns, "rollout-server", Phase::Succeeded).await;
        let log = logs(&ns, "rollout-server-coordinator").await;
        let mut lines = log.lines();
        let replaced = lines.find_map(|line| line.split_once(" replaced by "));
        let (hung, _) = replaced.unwrap_or_else(|| panic!("no engine was replaced: {log}"));
        assert!(
            log.contains(&format!("{hung} hangs at version 1: ")),
            "{log}"
        );
        assert!(log.contains("2 engines sample with version "), "{log}");

        let generations = log.lines().filter_map(|line| {
            let (number, engines) = line.strip_prefix("generation ")?.split_once(": ")?;
            Some((number.parse::<i64>().ok()?, engines))
        });
        let generations: Vec<_> = generations.collect();
        assert!(generations.is_sorted_by_key(|(number, _)| *number), "{log}");
        let with_hung = generations
            .iter()
            .rfind(|(_, engines)| engines.contains(hung));
        let (before, _) = with_hung.unwrap();
        let (after, engines) = generations.last().unwrap();
        assert_eq!(engines.split(", ").count(), 2, "{log}");
        // One generation without the hung engine, and one with its replacement.
        assert!(after - before >= 2, "{log}");
    })
    .await;
}
