//! Tests of learner groups: learners with several GPUs.

use std::collections::BTreeSet;

use di_api::{PlanEntry, Reason, Role, names::env};
use di_fixtures::{Job, template};
use di_plan::AggregatorTemplate;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::{
    super::{Observed, ReconcileError, step},
    fake_cluster::{World, aggregator, node},
};

fn job() -> Job {
    let resources = json!({"gpus": "6", "cpus": "12", "memory": "6Gi"});
    let groups = json!([{"name": "big", "replicas": 1, "resources": resources}]);
    let learner = json!({"template": template(), "groups": groups});
    Job::test().collectors(1).spec(json!({"learner": learner}))
}

fn running() -> World {
    World::running(job())
}

/// The wanted ddp learners, sorted by rank.
fn ddp_learners(world: &World) -> Vec<PlanEntry> {
    let wanted = |e: &&PlanEntry| e.role == Role::DdpLearner && e.is_wanted();
    let mut all: Vec<_> = world.plan().iter().filter(wanted).cloned().collect();
    all.sort_by_key(|entry| entry.ddp.as_ref().unwrap().start_rank);
    all
}

fn pod(world: &World, entry: &PlanEntry) -> Pod {
    let template = world.aggregator.pod_template();
    di_plan::build_pod(
        &world.job,
        entry,
        template,
        &di_plan::BuildSettings::default(),
    )
    .unwrap()
    .decode()
    .unwrap()
}

fn env_value(pod: &Pod, name: &str) -> Option<String> {
    let env = pod.spec.as_ref()?.containers[0].env.as_ref()?;
    env.iter()
        .find(|variable| variable.name == name)?
        .value
        .clone()
}

#[test]
fn multi_gpu_learner_is_aggregator_and_ddp_learners() {
    let world = running();
    let [group] = &world.wanted(Role::Aggregator)[..] else {
        panic!("{:?}", world.plan());
    };
    let members = ddp_learners(&world);
    let gpus: Vec<_> = members.iter().map(PlanEntry::gpu_count).collect();
    assert_eq!(gpus, [4, 2], "by the GPUs of the nodes");
    assert_eq!(world.pods.len(), 1 + 1 + 1 + 2);
    assert_eq!(world.services.len(), world.pods.len());
    assert_eq!(world.status().learners_ready.as_deref(), Some("1/1"));
    assert_eq!(world.status().replica_status["DDPLearner"].active, 2);
    assert_eq!(world.status().replica_status["Aggregator"].active, 1);
    let second = pod(&world, &members[1]);
    for (name, expected) in [
        (env::AGGREGATOR_URL, format!("{group}.rl:5000")),
        (env::WORLD_SIZE, "6".into()),
        (env::LOCAL_WORLD_SIZE, "2".into()),
        (env::START_RANK, "4".into()),
        (env::MASTER_ADDR, members[0].name.clone()),
        (env::MASTER_PORT, "10314".into()),
        (env::LEARNER_PORT, "22271".into()),
        (env::REPLICA_INDEX, "1".into()),
    ] {
        assert_eq!(env_value(&second, name), Some(expected), "{name}");
    }
}

#[test]
fn learner_group_is_ready_only_as_a_whole() {
    let mut world = running();
    let last = ddp_learners(&world)[1].name.clone();
    world.pods.get_mut(&last).unwrap().ready = false;
    world.settle();
    assert_eq!(world.status().learners_ready.as_deref(), Some("0/1"));
}

#[test]
fn f20_lost_member_replaces_whole_learner_group() {
    for lost in 0..3 {
        let mut world = running();
        let group = world.wanted(Role::Aggregator)[0].clone();
        let before = ddp_learners(&world);
        let names: Vec<_> = std::iter::once(group.clone())
            .chain(before.iter().map(|entry| entry.name.clone()))
            .collect();
        world.exit(&names[lost], 1, "Error");
        world.settle();
        world.remove_terminating_pods();
        world.settle();

        let new = world.wanted(Role::Aggregator);
        assert_eq!(new.len(), 1);
        assert_ne!(new[0], group);
        let after = ddp_learners(&world);
        let indices = |all: &[PlanEntry]| all.iter().map(|e| e.index).collect::<Vec<_>>();
        assert_eq!(
            indices(&after),
            indices(&before),
            "indices are kept by rank"
        );
        let aggregators: BTreeSet<_> = after
            .iter()
            .map(|entry| entry.ddp.as_ref().unwrap().aggregator.clone())
            .collect();
        assert_eq!(aggregators, BTreeSet::from([new[0].clone()]));
        let replaced: Vec<_> = after.iter().map(|e| e.replaces.clone().unwrap()).collect();
        assert_eq!(replaced, [before[0].name.clone(), before[1].name.clone()]);
        let left: Vec<_> = names
            .iter()
            .filter(|name| world.pods.contains_key(*name))
            .collect();
        assert_eq!(
            left,
            [&names[lost]],
            "only the failed pod is kept, for its logs"
        );

        // The next loss deletes the kept pod and starts a backoff.
        let all = world.wanted(Role::Aggregator).into_iter();
        for name in all.chain(ddp_learners(&world).into_iter().map(|entry| entry.name)) {
            world.run(&name);
        }
        world.settle();
        let second_lost = ddp_learners(&world)[1].name.clone();
        world.exit(&second_lost, 1, "Error");
        world.settle();
        world.remove_terminating_pods();
        world.settle();
        assert!(!world.pods.contains_key(&names[lost]));
        assert!(world.pods.contains_key(&second_lost));
        let waiting = ddp_learners(&world);
        assert_eq!(indices(&waiting), indices(&before));
        assert!(
            waiting
                .iter()
                .all(|entry| !world.pods.contains_key(&entry.name))
        );
        world.now += SignedDuration::from_secs(10);
        world.settle();
        assert!(
            waiting
                .iter()
                .all(|entry| world.pods.contains_key(&entry.name))
        );
    }
}

#[test]
fn replaced_learner_group_is_split_by_current_nodes() {
    let mut world = running();
    let first = ddp_learners(&world)[0].clone();
    world.nodes = vec![node(2); 3];
    world.pods.remove(&first.name);
    world.settle();
    let after = ddp_learners(&world);
    let places: Vec<_> = after.iter().map(|e| (e.gpu_count(), e.index)).collect();
    assert_eq!(places, [(2, 0), (2, 1), (2, 2)]);
    world.remove_terminating_pods();
    world.now += SignedDuration::from_secs(10);
    world.settle();
    world.nodes.clear();
    world.pods.remove(&after[1].name);
    world.settle();
    let gpus: Vec<_> = ddp_learners(&world)
        .iter()
        .map(PlanEntry::gpu_count)
        .collect();
    assert_eq!(gpus, [6], "the scheduler reports the lack of nodes");
}

#[test]
fn scale_down_deletes_whole_learner_group() {
    let mut world = running();
    world.job.spec.learner.as_mut().unwrap().groups.clear();
    world.settle();
    world.remove_terminating_pods();
    world.settle();
    assert_eq!(world.plan().len(), 1);
    assert_eq!((world.pods.len(), world.services.len()), (2, 2));
}

#[test]
fn f23_missing_config_delays_only_aggregators() {
    let mut world = World::new(job());
    world.aggregator = AggregatorTemplate::Missing;
    world.settle();
    assert_eq!(world.pods.len(), 2, "coordinator and collector");
    let status = world.status();
    assert_eq!(status.reason.as_deref(), Some("MissingAggregatorConfig"));
    let ready = di_api::find_condition(&status.conditions, di_api::ConditionType::ReplicasReady);
    let ready = ready.unwrap();
    assert_eq!(ready.reason, "MissingAggregatorConfig");
    assert!(
        ready
            .message
            .contains("exists in namespace rl or di-system")
    );
    let group = world.wanted(Role::Aggregator);
    world.aggregator = aggregator();
    world.settle();
    assert_eq!(world.wanted(Role::Aggregator), group);
    assert_eq!(world.pods.len(), 5);
    assert_eq!(world.status().reason, None);
    // Existing groups do not need the configuration, and keep their port.
    world.aggregator = AggregatorTemplate::Missing;
    world.settle();
    assert_eq!(world.status().reason, None);
    let port = world
        .plan()
        .iter()
        .find(|e| e.name == group[0])
        .unwrap()
        .port;
    assert_eq!(port, Some(5000));
}

#[test]
fn missing_config_event_is_not_repeated_during_error() {
    let mut world = World::new(job());
    world.aggregator = AggregatorTemplate::Missing;
    let missing = Reason::MissingAggregatorConfig;
    let count_events = |world: &mut World| {
        let events = world.compute_step().events.into_iter();
        events.filter(|event| event.reason == missing).count()
    };
    assert_eq!(count_events(&mut world), 1);
    world.settle();
    assert_eq!(count_events(&mut world), 0);
    world.last_error = Some(ReconcileError {
        reason: Reason::QuotaExceeded,
        message: "the server says why".to_owned(),
        deferred_create: None,
    });
    assert_eq!(count_events(&mut world), 0);
    world.settle();
    assert_eq!(world.status().reason.as_deref(), Some("QuotaExceeded"));
    assert_eq!(count_events(&mut world), 0, "with every write");
    world.last_error = None;
    assert_eq!(
        count_events(&mut world),
        1,
        "the reason of the job changes back"
    );
}

#[test]
fn learner_group_with_lost_plan_is_adopted_as_a_whole() {
    let mut world = running();
    let names = |world: &World| {
        let all = world.plan().iter();
        let places = all.map(|e| (e.name.clone(), e.role, e.ddp.clone(), e.gpu_count(), e.port));
        let mut places: Vec<_> = places
            .filter(|(_, role, ..)| *role != Role::Collector)
            .collect();
        places.sort_by(|a, b| a.0.cmp(&b.0));
        places
    };
    let before = names(&world);
    world.job.status = None;
    world.settle();
    assert_eq!(names(&world), before);
    assert_eq!(world.pods.len(), 5);
    // Pods of an undeclared group are adopted as requested ones.
    world.job.spec.learner.as_mut().unwrap().groups.clear();
    world.job.status = None;
    world.settle();
    assert_eq!(names(&world), before);
    assert_eq!(world.pods.len(), 5);

    // An incomplete group is replaced. A ddp learner without aggregator is deleted.
    let first = ddp_learners(&world)[0].name.clone();
    world.pods.remove(&first);
    world.job.status.as_mut().unwrap().plan.clear();
    world.settle();
    world.remove_terminating_pods();
    world.settle();
    assert_eq!(world.pods.len(), 5);
    assert!(!world.pods.contains_key(&first));
    let group = world.wanted(Role::Aggregator)[0].clone();
    world.pods.remove(&group);
    world.job.status.as_mut().unwrap().plan.clear();
    world.settle();
    world.remove_terminating_pods();
    world.settle();
    assert_eq!((world.pods.len(), world.plan().len()), (2, 1));
}

#[test]
fn learner_group_is_not_split_before_nodes_are_listed() {
    let world = running();
    let mut job = world.job.clone();
    let plan = &mut job.status.as_mut().unwrap().plan;
    plan.retain(|e| e.role != Role::DdpLearner);
    let pods = world.pods.values().cloned();
    let observed = Observed {
        job: job.into(),
        pods: pods.filter(|p| p.role != Some(Role::DdpLearner)).collect(),
        nodes: None,
        ..world.observe()
    };
    let step = step(&observed, &mut di_plan::RandomSuffixes);
    assert_eq!(step.requeue_after, Some(std::time::Duration::from_secs(1)));
    assert!(step.status.plan.iter().all(|e| e.role != Role::DdpLearner));
}

#[test]
fn group_resumed_while_terminating_keeps_its_names() {
    let mut world = running();
    let group = world.wanted(Role::Aggregator);
    let names: Vec<_> = world.pods.keys().cloned().collect();
    world.job.spec.suspend = true;
    world.settle();
    world.job.spec.suspend = false;
    // The aggregator terminates first.
    world.pods.remove(&group[0]);
    world.settle();
    assert!(
        !world.pods.contains_key(&group[0]),
        "its ddp learners are still terminating"
    );
    world.remove_terminating_pods();
    world.settle();
    assert!(world.pods.keys().eq(&names));
    assert!(world.pods.values().all(|pod| !pod.deleting));
}

#[test]
fn group_resumed_when_partially_deleted_is_replaced() {
    let mut world = running();
    let group = world.wanted(Role::Aggregator);
    let (kept, deleted) = (
        ddp_learners(&world)[0].name.clone(),
        ddp_learners(&world)[1].name.clone(),
    );
    world.job.spec.suspend = true;
    let step = world.compute_step();
    world.job.status = Some(step.status);
    world.pods.get_mut(&deleted).unwrap().deleting = true;
    world.job.spec.suspend = false;
    world.settle();
    assert_ne!(world.wanted(Role::Aggregator), group);
    for old in [&group[0], &kept, &deleted] {
        assert!(world.pods[old].deleting, "{old}");
    }
    world.remove_terminating_pods();
    world.settle();
    assert_eq!(world.pods.len(), 1 + 1 + 1 + 2);
}
