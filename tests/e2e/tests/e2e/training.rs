//! Trainings that complete although pods are killed and replicas are scaled.

use std::collections::BTreeSet;

use di_api::{AggregatorConfig, DIJob, GPU_RESOURCE, Phase, Role, names};
use di_e2e::{
    FOREVER, Namespace, ReplicaStates, eventually, is_running, is_solved, kubectl_di, logs,
    logs_so_far, main_container, owned_pods, pod_spec, replica_states, samples, set_node_gpus,
    training, wait_for_phase,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

/// The sample of a learner with two GPUs, and its AggregatorConfig.
const RANKS: &str = include_str!("../../../../manifests/samples/cartpole-ddp.yaml");
const AGGREGATORS: &str =
    include_str!("../../../../manifests/samples/cartpole-ddp-aggregator.yaml");

/// Slows the training down: it has about seven iterations, and the test disturbs it in between.
const PACE: [&str; 2] = ["--pace", "4s"];

/// Returns the running pods of a role.
async fn running_pods(ns: &Namespace, job: &str, role: Role) -> Vec<String> {
    let pods = owned_pods(ns, job).await;
    let of_role = |pod: &&Pod| pod.labels()[names::labels::ROLE] == role.label();
    let pods = pods.iter().filter(of_role).filter(|pod| is_running(pod));
    pods.map(ResourceExt::name_any).collect()
}

/// Waits until this number of replicas has samples.
pub(crate) async fn wait_for_samples(ns: &Namespace, job: &str, replicas: usize) -> ReplicaStates {
    let all = |states: &ReplicaStates| {
        let mut names = states.keys();
        states.len() == replicas && names.all(|name| samples(states, name) > 0)
    };
    eventually("training", || replica_states(ns, job), all).await
}

/// Deletes a pod without grace, like the loss of its machine.
async fn kill_pod(ns: &Namespace, pod: &str) {
    let at_once = DeleteParams::default().grace_period(0);
    ns.api::<Pod>().delete(pod, &at_once).await.unwrap();
}

/// Waits until a training has succeeded, and returns the coordinator's log.
pub(crate) async fn wait_until_solved(ns: &Namespace, job: &str) -> String {
    wait_for_phase(ns, job, Phase::Succeeded).await;
    let log = logs(ns, &names::coordinator_name(job)).await;
    assert!(is_solved(&log), "{log}");
    log
}

/// Returns the replicas of a role that the coordinator connected to.
fn connected_replicas<'a>(log: &'a str, job: &str, role: Role) -> BTreeSet<&'a str> {
    let prefix = format!("{job}-{}-", role.label());
    let pods = log.split("connected to ").skip(1);
    let pods = pods.filter_map(|rest| rest.split_whitespace().next());
    pods.filter(|pod| pod.starts_with(&prefix)).collect()
}

/// Returns the iterations in the log, in order.
pub(crate) fn logged_iterations(log: &str) -> impl Iterator<Item = u64> {
    let states = log.lines().filter_map(|line| line.split_once("  frames "));
    states.filter_map(|(before, _)| before.rsplit(' ').next()?.parse().ok())
}

#[tokio::test]
async fn training_is_solved_after_collectors_and_learner_are_killed() {
    Namespace::with("killed", |ns| async move {
        let replicas = ["--collectors", "2", "--learners", "1"];
        ns.submit(&training("train", &[&replicas[..], &PACE].concat()))
            .await;
        wait_for_samples(&ns, "train", 4).await;
        let collectors = running_pods(&ns, "train", Role::Collector).await;
        let learners = running_pods(&ns, "train", Role::Learner).await;
        assert_eq!((collectors.len(), learners.len()), (2, 1));
        for pod in collectors.iter().chain(&learners) {
            kill_pod(&ns, pod).await;
        }
        let log = wait_until_solved(&ns, "train").await;
        // The training needed replacements to end.
        assert!(
            connected_replicas(&log, "train", Role::Collector).len() > 2,
            "{log}"
        );
        assert!(
            connected_replicas(&log, "train", Role::Learner).len() > 1,
            "{log}"
        );
    })
    .await;
}

#[tokio::test]
async fn training_resumes_from_checkpoint_after_coordinator_kill() {
    Namespace::with("resumed", |ns| async move {
        let replicas = ["--collectors", "1", "--learners", "1"];
        // It saves only when it is terminated, and has the grace period to do so.
        let seldom = ["--save-every", "1h"];
        let mut job = training("train", &[&replicas[..], &seldom, &PACE].concat());
        let coordinator = &mut job.spec.coordinator.template;
        pod_spec(coordinator)["terminationGracePeriodSeconds"] = json!(60);
        ns.submit(&job).await;
        let coordinator = names::coordinator_name("train");
        let look = || logs_so_far(&ns, &coordinator);
        let has_learned = |log: &String| logged_iterations(log).any(|iteration| iteration > 0);
        eventually("training", look, has_learned).await;
        let restarted = kubectl_di(&ns, &["restart", "train"]).await;
        assert_eq!(restarted.code, Some(0), "{restarted:?}");
        let has_resumed = |log: &String| log.contains("resuming from ");
        eventually("resumed", look, has_resumed).await;
        kill_pod(&ns, &coordinator).await;
        let log = wait_until_solved(&ns, "train").await;
        // This log is from the recreated coordinator.
        let begun = logged_iterations(&log).next();
        assert!(begun > Some(0), "{log}");
        assert!(log.contains("resuming from "), "{log}");
    })
    .await;
}

#[tokio::test]
async fn multi_pod_learner_solves_after_aggregator_is_killed() {
    Namespace::with("ranks", |ns| async move {
        // The same number as in the user guide test, which runs at the same time.
        set_node_gpus(&ns, 3).await;
        let configs: Api<AggregatorConfig> = ns.api();
        let config = serde_saphyr::from_str(AGGREGATORS).unwrap();
        configs
            .create(&PostParams::default(), &config)
            .await
            .unwrap();
        let mut job: DIJob = serde_saphyr::from_str(RANKS).unwrap();
        let name = job.name_any();
        let flags = main_container(&mut job.spec.coordinator.template)["args"].as_array_mut();
        let pace = flags.unwrap().last_mut().unwrap();
        *pace = PACE[1].into();
        let learner = main_container(&mut job.spec.learner.as_mut().unwrap().template);
        let limits = &mut learner["resources"]["limits"];
        // No node has four GPUs. Each rank gets a fourth of the memory.
        for (resource, amount) in [(GPU_RESOURCE, "4"), ("memory", "1Gi")] {
            limits[resource] = json!(amount);
        }
        ns.submit(&job).await;
        // The coordinator, two collectors, an aggregator, and the first ranks of two pods.
        wait_for_samples(&ns, &name, 6).await;
        let pods = running_pods(&ns, &name, Role::DdpLearner).await;
        assert_eq!(pods.len(), 2, "{pods:?}");
        let aggregator = running_pods(&ns, &name, Role::Aggregator)
            .await
            .swap_remove(0);
        kill_pod(&ns, &aggregator).await;
        let log = wait_until_solved(&ns, &name).await;
        // Another aggregator means other ranks: the learner group is replaced as a whole.
        assert!(
            connected_replicas(&log, &name, Role::Aggregator).len() > 1,
            "{log}"
        );
    })
    .await;
}

#[tokio::test]
async fn training_continues_while_collectors_scale() {
    Namespace::with("scaled", |ns| async move {
        let own_pace = ["--declared", "--pace", "500ms"];
        let mut job = training("train", &[&own_pace[..], &FOREVER].concat());
        job.spec.collector.as_mut().unwrap().replicas = 2;
        job.spec.learner.as_mut().unwrap().replicas = 1;
        ns.submit(&job).await;
        wait_for_samples(&ns, "train", 4).await;
        for (collectors, replicas) in [(4, 6), (1, 3)] {
            let count = format!("--collectors={collectors}");
            let set = kubectl_di(&ns, &["replicas", "set", "train", &count, "--wait"]).await;
            assert_eq!(set.code, Some(0), "{set:?}");
            let before = wait_for_samples(&ns, "train", replicas).await;
            let more = |states: &ReplicaStates| {
                let mut names = before.keys();
                states.len() == replicas
                    && names.all(|name| samples(states, name) > samples(&before, name))
            };
            eventually(
                "all have more samples",
                || replica_states(&ns, "train"),
                more,
            )
            .await;
        }
    })
    .await;
}
