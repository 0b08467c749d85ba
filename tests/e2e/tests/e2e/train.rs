//! Trainings that come to their end although pods die, and replicas come and go meanwhile.

use std::collections::BTreeSet;

use di_api::{AggregatorConfig, DIJob, GPU_RESOURCE, Phase, Role, names};
use di_e2e::{
    FOREVER, Namespace, Told, di, eventually, is_running, is_solved, logs, logs_so_far, main_of,
    nodes_have_gpus, owned_pods, reaches, samples, told, training,
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::api::resource::Quantity};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};

/// The sample of a learner of two GPUs, and what its aggregators are made from.
const RANKS: &str = include_str!("../../../../manifests/samples/cartpole-ddp.yaml");
const AGGREGATORS: &str =
    include_str!("../../../../manifests/samples/cartpole-ddp-aggregator.yaml");

/// Time enough between the first iteration and the last of a training, of which there are seven or so, for what befalls it in its middle.
const PACE: [&str; 2] = ["--pace", "4s"];

/// The running pods of a role.
async fn running(ns: &Namespace, job: &str, role: Role) -> Vec<String> {
    let pods = owned_pods(ns, job).await;
    let of_role = |pod: &&Pod| pod.labels()[names::labels::ROLE] == role.label();
    let pods = pods.iter().filter(of_role).filter(|pod| is_running(pod));
    pods.map(ResourceExt::name_any).collect()
}

/// Waits until so many replicas have samples.
async fn trains(ns: &Namespace, job: &str, replicas: usize) -> Told {
    let all = |told: &Told| {
        let mut names = told.keys();
        told.len() == replicas && names.all(|name| samples(told, name) > 0)
    };
    eventually("training", || told(ns, job), all).await
}

/// Ends a pod at once, as the loss of its machine does.
async fn kill(ns: &Namespace, pod: &str) {
    let at_once = DeleteParams::default().grace_period(0);
    ns.api::<Pod>().delete(pod, &at_once).await.unwrap();
}

/// What the coordinator of a training logged that ended with success.
async fn solved(ns: &Namespace, job: &str) -> String {
    reaches(ns, job, Phase::Succeeded).await;
    let log = logs(ns, &names::coordinator(job)).await;
    assert!(is_solved(&log), "{log}");
    log
}

/// The replicas of a role that it connected to.
fn connected<'a>(log: &'a str, job: &str, role: Role) -> BTreeSet<&'a str> {
    let prefix = format!("{job}-{}-", role.label());
    let pods = log.split("connected to ").skip(1);
    let pods = pods.filter_map(|rest| rest.split_whitespace().next());
    pods.filter(|pod| pod.starts_with(&prefix)).collect()
}

/// The iterations that it told of, one after the other.
fn iterations(log: &str) -> impl Iterator<Item = u64> {
    let told = log.lines().filter_map(|line| line.split_once("  frames "));
    told.filter_map(|(before, _)| before.rsplit(' ').next()?.parse().ok())
}

#[tokio::test]
async fn a_training_is_solved_though_its_collectors_and_its_learner_are_killed() {
    Namespace::with("killed", |ns| async move {
        let replicas = ["--collectors", "2", "--learners", "1"];
        ns.submit(&training("train", &[&replicas[..], &PACE].concat()))
            .await;
        trains(&ns, "train", 4).await;
        let collectors = running(&ns, "train", Role::Collector).await;
        let learners = running(&ns, "train", Role::Learner).await;
        assert_eq!((collectors.len(), learners.len()), (2, 1));
        for pod in collectors.iter().chain(&learners) {
            kill(&ns, pod).await;
        }
        let log = solved(&ns, "train").await;
        // Without others it could not have ended.
        assert!(connected(&log, "train", Role::Collector).len() > 2, "{log}");
        assert!(connected(&log, "train", Role::Learner).len() > 1, "{log}");
    })
    .await;
}

#[tokio::test]
async fn a_training_goes_on_from_its_checkpoint_though_its_coordinator_is_restarted_and_killed() {
    Namespace::with("resumed", |ns| async move {
        let replicas = ["--collectors", "1", "--learners", "1"];
        // It saves nothing before it is told to go, and then it has the time to.
        let seldom = ["--save-every", "1h"];
        let mut job = training("train", &[&replicas[..], &seldom, &PACE].concat());
        let pod = job.spec.coordinator.template.spec.as_mut().unwrap();
        pod.termination_grace_period_seconds = Some(60);
        ns.submit(&job).await;
        let coordinator = names::coordinator("train");
        let look = || logs_so_far(&ns, &coordinator);
        let has_learned = |log: &String| iterations(log).any(|iteration| iteration > 0);
        eventually("training", look, has_learned).await;
        let restarted = di(&ns, &["restart", "train"]).await;
        assert_eq!(restarted.code, Some(0), "{restarted:?}");
        let goes_on = |log: &String| log.contains("resuming from ");
        eventually("going on", look, goes_on).await;
        kill(&ns, &coordinator).await;
        let log = solved(&ns, "train").await;
        // It is the log of the one that was made anew.
        let begun = iterations(&log).next();
        assert!(begun > Some(0), "{log}");
        assert!(log.contains("resuming from "), "{log}");
    })
    .await;
}

#[tokio::test]
async fn a_learner_of_ranks_in_two_pods_solves_it_though_its_aggregator_is_killed() {
    Namespace::with("ranks", |ns| async move {
        // As many as the test of the user guide gives them, which has two of a node meanwhile.
        nodes_have_gpus(&ns, 3).await;
        let configs: Api<AggregatorConfig> = ns.api();
        let config = serde_saphyr::from_str(AGGREGATORS).unwrap();
        configs
            .create(&PostParams::default(), &config)
            .await
            .unwrap();
        let mut job: DIJob = serde_saphyr::from_str(RANKS).unwrap();
        let name = job.name_any();
        let flags = main_of(&mut job.spec.coordinator.template).args.as_mut();
        let pace = flags.unwrap().last_mut().unwrap();
        PACE[1].clone_into(pace);
        let learner = main_of(&mut job.spec.learner.as_mut().unwrap().template);
        let resources = learner.resources.as_mut().unwrap();
        let limits = resources.limits.as_mut().unwrap();
        // No node has as many. Each rank has a fourth of the memory.
        for (resource, amount) in [(GPU_RESOURCE, "4"), ("memory", "1Gi")] {
            limits.insert(resource.to_owned(), Quantity(amount.to_owned()));
        }
        ns.submit(&job).await;
        // The coordinator, two collectors, an aggregator, and the first ranks of two pods.
        trains(&ns, &name, 6).await;
        let pods = running(&ns, &name, Role::DdpLearner).await;
        assert_eq!(pods.len(), 2, "{pods:?}");
        let aggregator = running(&ns, &name, Role::Aggregator).await.swap_remove(0);
        kill(&ns, &aggregator).await;
        let log = solved(&ns, &name).await;
        // Who connects to another aggregator has other ranks behind it: they are one unit.
        assert!(connected(&log, &name, Role::Aggregator).len() > 1, "{log}");
    })
    .await;
}

#[tokio::test]
async fn collectors_come_and_go_while_it_trains() {
    Namespace::with("scaled", |ns| async move {
        let own_pace = ["--declared", "--pace", "500ms"];
        let mut job = training("train", &[&own_pace[..], &FOREVER].concat());
        job.spec.collector.as_mut().unwrap().replicas = 2;
        job.spec.learner.as_mut().unwrap().replicas = 1;
        ns.submit(&job).await;
        trains(&ns, "train", 4).await;
        for (collectors, replicas) in [(4, 6), (1, 3)] {
            let count = format!("--collectors={collectors}");
            let set = di(&ns, &["replicas", "set", "train", &count, "--wait"]).await;
            assert_eq!(set.code, Some(0), "{set:?}");
            let before = trains(&ns, "train", replicas).await;
            let more = |told: &Told| {
                let mut names = before.keys();
                told.len() == replicas
                    && names.all(|name| samples(told, name) > samples(&before, name))
            };
            eventually("going on with all", || told(&ns, "train"), more).await;
        }
    })
    .await;
}
