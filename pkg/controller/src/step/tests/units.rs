//! Learners of several GPUs.

use std::collections::BTreeSet;

use di_api::{PlanEntry, Reason, Role, names::env};
use di_plan::AggregatorTemplate;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;

use super::{
    super::{Observed, Trouble, step},
    world::{World, aggregator, node},
};

const JOB: &str = r#"
apiVersion: diengine.opendilab.org/v1alpha2
kind: DIJob
metadata: {name: j}
spec:
  coordinator: {template: {spec: {containers: [{name: di-container, image: c}]}}}
  collector: {template: {spec: {containers: [{name: di-container, image: k}]}}, replicas: 1}
  learner:
    template: {spec: {containers: [{name: di-container, image: l}]}}
    groups: [{name: big, replicas: 1, resources: {gpus: "6", cpus: "12", memory: 6Gi}}]
"#;

fn running() -> World {
    World::running(JOB)
}

/// The wanted ddp learners in the order of their ranks.
fn ddp(world: &World) -> Vec<PlanEntry> {
    let wanted = |e: &&PlanEntry| e.role == Role::DdpLearner && e.is_wanted();
    let mut all: Vec<_> = world.plan().iter().filter(wanted).cloned().collect();
    all.sort_by_key(|entry| entry.ddp.as_ref().unwrap().start_rank);
    all
}

fn pod(world: &World, entry: &PlanEntry) -> Pod {
    let template = world.aggregator.found();
    di_plan::pod(
        &world.job,
        entry,
        template,
        &di_plan::BuildSettings::default(),
    )
    .unwrap()
}

fn value(pod: &Pod, name: &str) -> Option<String> {
    let env = pod.spec.as_ref()?.containers[0].env.as_ref()?;
    env.iter()
        .find(|variable| variable.name == name)?
        .value
        .clone()
}

#[test]
fn a_learner_of_several_gpus_is_an_aggregator_and_its_ddp_learners() {
    let world = running();
    let [unit] = &world.wanted(Role::Aggregator)[..] else {
        panic!("{:?}", world.plan());
    };
    let members = ddp(&world);
    let gpus: Vec<_> = members.iter().map(PlanEntry::gpus).collect();
    assert_eq!(gpus, [4, 2], "as the nodes have room");
    assert_eq!(world.pods.len(), 1 + 1 + 1 + 2);
    assert_eq!(world.services.len(), world.pods.len());
    assert_eq!(world.status().learners_ready.as_deref(), Some("1/1"));
    assert_eq!(world.status().replica_status["DDPLearner"].active, 2);
    assert_eq!(world.status().replica_status["Aggregator"].active, 1);
    let second = pod(&world, &members[1]);
    for (name, expected) in [
        (env::AGGREGATOR_URL, format!("{unit}.rl:5000")),
        (env::WORLD_SIZE, "6".into()),
        (env::LOCAL_WORLD_SIZE, "2".into()),
        (env::START_RANK, "4".into()),
        (env::MASTER_ADDR, members[0].name.clone()),
        (env::MASTER_PORT, "10314".into()),
        (env::LEARNER_PORT, "22271".into()),
        (env::REPLICA_INDEX, "1".into()),
    ] {
        assert_eq!(value(&second, name), Some(expected), "{name}");
    }
}

#[test]
fn a_unit_is_ready_only_as_a_whole() {
    let mut world = running();
    let last = ddp(&world)[1].name.clone();
    world.pods.get_mut(&last).unwrap().ready = false;
    world.settle();
    assert_eq!(world.status().learners_ready.as_deref(), Some("0/1"));
}

#[test]
fn f20_the_loss_of_one_replaces_the_whole_unit_and_leaves_none_behind() {
    for lost in 0..3 {
        let mut world = running();
        let unit = world.wanted(Role::Aggregator)[0].clone();
        let before = ddp(&world);
        let names: Vec<_> = std::iter::once(unit.clone())
            .chain(before.iter().map(|entry| entry.name.clone()))
            .collect();
        world.exit(&names[lost], 1, "Error");
        world.settle();
        world.kubelet_ends_deleted();
        world.settle();

        let new = world.wanted(Role::Aggregator);
        assert_eq!(new.len(), 1);
        assert_ne!(new[0], unit);
        let after = ddp(&world);
        let numbers = |all: &[PlanEntry]| all.iter().map(|e| e.index).collect::<Vec<_>>();
        assert_eq!(
            numbers(&after),
            numbers(&before),
            "numbers are kept by rank"
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
            "the failed one alone is kept, for its logs"
        );

        // The next loss frees it, and waits.
        let all = world.wanted(Role::Aggregator).into_iter();
        for name in all.chain(ddp(&world).into_iter().map(|entry| entry.name)) {
            world.run(&name);
        }
        world.settle();
        let again = ddp(&world)[1].name.clone();
        world.exit(&again, 1, "Error");
        world.settle();
        world.kubelet_ends_deleted();
        world.settle();
        assert!(!world.pods.contains_key(&names[lost]));
        assert!(world.pods.contains_key(&again));
        let waiting = ddp(&world);
        assert_eq!(numbers(&waiting), numbers(&before));
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
fn a_new_unit_is_split_by_the_nodes_that_there_are_then() {
    let mut world = running();
    let first = ddp(&world)[0].clone();
    world.nodes = vec![node(2); 3];
    world.pods.remove(&first.name);
    world.settle();
    let after = ddp(&world);
    let places: Vec<_> = after.iter().map(|e| (e.gpus(), e.index)).collect();
    assert_eq!(places, [(2, 0), (2, 1), (2, 2)]);
    world.kubelet_ends_deleted();
    world.now += SignedDuration::from_secs(10);
    world.settle();
    world.nodes.clear();
    world.pods.remove(&after[1].name);
    world.settle();
    let gpus: Vec<_> = ddp(&world).iter().map(PlanEntry::gpus).collect();
    assert_eq!(gpus, [6], "the scheduler will tell");
}

#[test]
fn fewer_declared_lets_the_whole_unit_go() {
    let mut world = running();
    world.job.spec.learner.as_mut().unwrap().groups.clear();
    world.settle();
    world.kubelet_ends_deleted();
    world.settle();
    assert_eq!(world.plan().len(), 1);
    assert_eq!((world.pods.len(), world.services.len()), (2, 2));
}

#[test]
fn f23_without_a_configuration_only_aggregators_wait() {
    let mut world = World::new(JOB);
    world.aggregator = AggregatorTemplate::Missing;
    world.settle();
    assert_eq!(world.pods.len(), 2, "coordinator and collector");
    let status = world.status();
    assert_eq!(status.reason.as_deref(), Some("MissingAggregatorConfig"));
    let ready = di_api::condition(&status.conditions, di_api::ConditionType::ReplicasReady);
    let ready = ready.unwrap();
    assert_eq!(ready.reason, "MissingAggregatorConfig");
    assert!(
        ready
            .message
            .contains("exists in namespace rl or di-system")
    );
    let unit = world.wanted(Role::Aggregator);
    world.aggregator = aggregator();
    world.settle();
    assert_eq!(world.wanted(Role::Aggregator), unit);
    assert_eq!(world.pods.len(), 5);
    assert_eq!(world.status().reason, None);
    // Once they are made, its loss is nothing to them, and their port stays.
    world.aggregator = AggregatorTemplate::Missing;
    world.settle();
    assert_eq!(world.status().reason, None);
    let port = world
        .plan()
        .iter()
        .find(|e| e.name == unit[0])
        .unwrap()
        .port;
    assert_eq!(port, Some(5000));
}

#[test]
fn that_a_configuration_is_missing_is_told_once_while_something_else_is_refused() {
    let mut world = World::new(JOB);
    world.aggregator = AggregatorTemplate::Missing;
    let missing = Reason::MissingAggregatorConfig;
    let told = |world: &mut World| {
        let notes = world.look().notes.into_iter();
        notes.filter(|note| note.reason == missing).count()
    };
    assert_eq!(told(&mut world), 1);
    world.settle();
    assert_eq!(told(&mut world), 0);
    world.trouble = Some(Trouble {
        reason: Reason::QuotaExceeded,
        message: "the server says why".to_owned(),
        about: None,
    });
    assert_eq!(told(&mut world), 0);
    world.settle();
    assert_eq!(world.status().reason.as_deref(), Some("QuotaExceeded"));
    assert_eq!(told(&mut world), 0, "with every write");
    world.trouble = None;
    assert_eq!(told(&mut world), 1, "it is the job's reason again");
}

#[test]
fn a_unit_whose_plan_was_lost_is_taken_in_as_one() {
    let mut world = running();
    let names = |world: &World| {
        let all = world.plan().iter();
        let places = all.map(|e| (e.name.clone(), e.role, e.ddp.clone(), e.gpus(), e.port));
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
    // Of a group that is not declared any more, as many requested ones are found.
    world.job.spec.learner.as_mut().unwrap().groups.clear();
    world.job.status = None;
    world.settle();
    assert_eq!(names(&world), before);
    assert_eq!(world.pods.len(), 5);

    // One that is not whole any more is replaced, and a ddp learner alone goes.
    let first = ddp(&world)[0].name.clone();
    world.pods.remove(&first);
    world.job.status.as_mut().unwrap().plan.clear();
    world.settle();
    world.kubelet_ends_deleted();
    world.settle();
    assert_eq!(world.pods.len(), 5);
    assert!(!world.pods.contains_key(&first));
    let unit = world.wanted(Role::Aggregator)[0].clone();
    world.pods.remove(&unit);
    world.job.status.as_mut().unwrap().plan.clear();
    world.settle();
    world.kubelet_ends_deleted();
    world.settle();
    assert_eq!((world.pods.len(), world.plan().len()), (2, 1));
}

#[test]
fn before_nodes_are_known_nothing_is_split() {
    let world = running();
    let mut job = world.job.clone();
    let plan = &mut job.status.as_mut().unwrap().plan;
    plan.retain(|e| e.role != Role::DdpLearner);
    let pods = world.pods.values().cloned();
    let pods: Vec<_> = pods.filter(|p| p.role != Some(Role::DdpLearner)).collect();
    let services: Vec<_> = world.services.values().cloned().collect();
    let seen = Observed {
        job: &job,
        pods: &pods,
        services: &services,
        nodes: None,
        aggregator: &world.aggregator,
        trouble: None,
        gone: None,
        asked: &std::collections::HashMap::new(),
        now: world.now,
    };
    let step = step(&seen, &mut di_plan::RandomSuffixes);
    assert_eq!(step.again, Some(std::time::Duration::from_secs(1)));
    assert!(step.status.plan.iter().all(|e| e.role != Role::DdpLearner));
}

#[test]
fn a_unit_that_is_let_go_on_before_its_pods_are_gone_is_made_together_under_its_names() {
    let mut world = running();
    let unit = world.wanted(Role::Aggregator);
    let names: Vec<_> = world.pods.keys().cloned().collect();
    world.job.spec.suspend = true;
    world.settle();
    world.job.spec.suspend = false;
    // Its aggregator is gone first.
    world.pods.remove(&unit[0]);
    world.settle();
    assert!(
        !world.pods.contains_key(&unit[0]),
        "its ddp learners are not gone yet"
    );
    world.kubelet_ends_deleted();
    world.settle();
    assert!(world.pods.keys().eq(&names));
    assert!(world.pods.values().all(|pod| !pod.deleting));
}

#[test]
fn a_unit_of_which_a_part_was_told_to_go_when_the_job_was_let_go_on_is_replaced_as_one() {
    let mut world = running();
    let unit = world.wanted(Role::Aggregator);
    let (stays, goes) = (ddp(&world)[0].name.clone(), ddp(&world)[1].name.clone());
    world.job.spec.suspend = true;
    let step = world.look();
    world.job.status = Some(step.status);
    world.pods.get_mut(&goes).unwrap().deleting = true;
    world.job.spec.suspend = false;
    world.settle();
    assert_ne!(world.wanted(Role::Aggregator), unit);
    for old in [&unit[0], &stays, &goes] {
        assert!(world.pods[old].deleting, "{old}");
    }
    world.kubelet_ends_deleted();
    world.settle();
    assert_eq!(world.pods.len(), 1 + 1 + 1 + 2);
}
