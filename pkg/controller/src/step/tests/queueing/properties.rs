//! Properties of queued jobs after any sequence of changes.

use di_api::{ElasticQueueing, Origin, QueueingSpec, Role};
use di_plan::AggregatorTemplate;
use proptest::{prelude::*, sample::select};
use serde_json::json;

use super::{
    container, queued_job, queued_job_with_group, request, run_active, set_collector,
    set_collectors,
};
use crate::step::tests::fake_cluster::{World, node};

#[derive(Clone, Copy, Debug)]
enum Change {
    Admit(usize),
    Evict(usize),
    DeleteWorkload(usize),
    RemoveTerminating,
    Run,
    Exit(usize, i32),
    DeletePod(usize),
    Request(usize),
    SetCollectors(i32),
    SetSuspended(bool),
    SetCpus(&'static str),
    SetAggregatorCpus(&'static str),
    SetElastic(ElasticQueueing),
    SetNodes(i32),
    LoseStatus,
}

const CPUS: [&str; 3] = ["1", "2", "3"];

fn any_change() -> impl Strategy<Value = Change> {
    let one = 0..8_usize;
    prop_oneof![
        6 => one.clone().prop_map(Change::Admit),
        3 => one.clone().prop_map(Change::Evict),
        1 => one.clone().prop_map(Change::DeleteWorkload),
        5 => Just(Change::RemoveTerminating),
        4 => Just(Change::Run),
        2 => (one.clone(), select(vec![0, 1])).prop_map(|(i, code)| Change::Exit(i, code)),
        2 => one.prop_map(Change::DeletePod),
        2 => (1..3_usize).prop_map(Change::Request),
        2 => (0..5).prop_map(Change::SetCollectors),
        1 => any::<bool>().prop_map(Change::SetSuspended),
        2 => select(CPUS.to_vec()).prop_map(Change::SetCpus),
        1 => select(CPUS.to_vec()).prop_map(Change::SetAggregatorCpus),
        1 => select(vec![ElasticQueueing::PerReplica, ElasticQueueing::Whole]).prop_map(Change::SetElastic),
        1 => (1..5).prop_map(Change::SetNodes),
        1 => Just(Change::LoseStatus),
    ]
}

fn pick(all: &[String], i: usize) -> Option<String> {
    (!all.is_empty()).then(|| all[i % all.len()].clone())
}

fn apply(world: &mut World, change: Change) {
    let workloads = |world: &World, admitted| -> Vec<String> {
        let all = world
            .queue
            .workloads
            .iter()
            .filter(|w| w.has_quota() == admitted && !w.is_true("Finished"));
        all.map(|w| w.name.clone()).collect()
    };
    let replicas = |world: &World| -> Vec<String> {
        let pods = world
            .pods
            .values()
            .filter(|pod| pod.is_active() && pod.role != Some(Role::Coordinator));
        pods.map(|pod| pod.name.clone()).collect()
    };
    match change {
        Change::Admit(i) => {
            if let Some(name) = pick(&workloads(world, false), i) {
                world.admit(&name);
            }
        }
        Change::Evict(i) => {
            if let Some(name) = pick(&workloads(world, true), i) {
                world.evict(&name, ["Preempted", "PodsReadyTimeout"][i % 2]);
            }
        }
        Change::DeleteWorkload(i) => {
            if let Some(name) = pick(&workloads(world, true), i) {
                world.delete_workload(&name);
            }
        }
        Change::RemoveTerminating => world.remove_terminating_pods(),
        Change::Run => run_active(world),
        Change::Exit(i, code) => {
            if let Some(name) = pick(&replicas(world), i) {
                world.exit(&name, code, "Ended");
            }
        }
        Change::DeletePod(i) => {
            if let Some(name) = pick(&replicas(world), i) {
                world.pods.get_mut(&name).unwrap().deleting = true;
            }
        }
        Change::Request(count) => {
            if world.job.status.is_some() {
                request(world, count);
            }
        }
        Change::SetCollectors(count) => set_collectors(world, count),
        Change::SetCpus(cpus) => {
            set_collector(world, &json!({"containers": [container(cpus)]}));
        }
        Change::SetAggregatorCpus(cpus) => {
            world.aggregator = AggregatorTemplate::from_config(&json!({
                "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "AggregatorConfig",
                "metadata": {"name": "aggregator-config", "namespace": "rl"},
                "spec": {"aggregator": {"template": {"spec": {"containers": [container(cpus)]}}}},
            }));
        }
        Change::SetElastic(elastic) => {
            world.job.spec.queueing = Some(QueueingSpec {
                elastic,
                ..QueueingSpec::default()
            });
        }
        Change::SetNodes(gpus) => world.nodes = vec![node(gpus), node(4)],
        Change::SetSuspended(suspend) => world.job.spec.suspend = suspend,
        Change::LoseStatus => world.job.status = None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_pod_runs_without_quota(changes in proptest::collection::vec(any_change(), 1..40), has_group: bool) {
        let mut world = World::new(if has_group { queued_job_with_group() } else { queued_job() });
        world.serve_kueue();
        for change in changes {
            apply(&mut world, change);
            // Creates and returns of quota are checked when they are applied.
            world.settle();
        }
        // In the end everything is admitted and runs.
        world.job.spec.suspend = false;
        world.job.spec.queueing = None;
        for _ in 0..12 {
            world.remove_terminating_pods();
            world.settle();
            for name in world.queue.workloads.iter().filter(|w| !w.has_quota()).map(|w| w.name.clone()).collect::<Vec<_>>() {
                world.admit(&name);
            }
            world.now = world.now.checked_add(jiff::SignedDuration::from_secs(400)).unwrap();
            world.settle();
            apply(&mut world, Change::Run);
        }
        world.settle();
        let waiting = world.plan().iter().filter(|entry| entry.is_wanted() && !entry.done && !world.pods.contains_key(&entry.name));
        prop_assert_eq!(waiting.count(), 0, "{:#?}", world.plan());
        let declared = world.plan().iter().filter(|entry| entry.origin == Origin::Declared && entry.is_wanted());
        prop_assert!(declared.count() > 0);
    }
}
