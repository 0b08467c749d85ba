//! Gangs.

mod unusable_api;

use std::sync::Arc;

use di_api::{ConditionType, Role, find_condition};
use di_fixtures::Job;
use di_plan::{AggregatorTemplate, GangScheduler, GroupView};
use serde_json::json;

use super::{
    fake_cluster::{COORDINATOR, World, aggregator, job},
    fake_gang_scheduler::GROUP,
    fake_kueue::BASE,
};
use crate::step::Action;

/// A job with two collectors and a learner. One of the collectors is not in the floor.
pub(super) fn gang_job() -> Job {
    job().spec(json!({"scheduling": {"gang": {"minCollectors": 1}}}))
}

fn start(job: Job) -> World {
    let mut world = World::new(job);
    world.serve_gangs();
    world.settle();
    world
}

/// A cluster with a job whose gang waits for nodes.
fn waiting() -> World {
    start(gang_job())
}

/// A cluster with a running job.
fn placed() -> World {
    let mut world = waiting();
    run(&mut world);
    world
}

fn run(world: &mut World) {
    for _ in 0..2 {
        world.schedule(9);
        world.settle();
    }
    world.run_all();
    world.settle();
}

fn min_member(world: &World) -> Option<i32> {
    world.group().map(|group| group.min_member)
}

fn is_placed(world: &World) -> bool {
    let scheduling = world.status().scheduling.as_ref();
    scheduling.is_some_and(|scheduling| scheduling.placed)
}

/// Status, reason and message of the condition `ReplicasReady`.
fn readiness(world: &World) -> (&str, &str, &str) {
    let conditions = &world.status().conditions;
    let ready = find_condition(conditions, ConditionType::ReplicasReady).unwrap();
    (&ready.status, &ready.reason, &ready.message)
}

fn aggregator_with_scheduler(name: &str) -> AggregatorTemplate {
    let mut template = aggregator().pod_template().unwrap().clone();
    template.0["spec"]["schedulerName"] = json!(name);
    AggregatorTemplate::Found(Arc::new(template))
}

fn set_collectors(world: &mut World, count: i32) {
    world.job.spec.collector.as_mut().unwrap().replicas = count;
    world.settle();
    world.remove_terminating_pods();
    world.settle();
}

fn wait(world: &mut World) {
    world.now += jiff::SignedDuration::from_secs(400);
}

#[test]
fn floor_starts_before_overflow() {
    let mut world = waiting();
    assert_eq!((world.pods.len(), min_member(&world)), (3, Some(3)));
    let scheduling = world.status().scheduling.clone().unwrap();
    assert_eq!((&*scheduling.group, scheduling.min_member), (GROUP, 3));
    let message = "gang: 0 of 3 placed";
    assert_eq!(readiness(&world), ("False", "GangWaiting", message));

    world.schedule(2);
    world.settle();
    let message = "gang: 0 of 3 placed, waiting for nvidia.com/gpu";
    assert_eq!(readiness(&world), ("False", "GangWaiting", message));
    assert_eq!(world.pods.len(), 3);
    assert!(!is_placed(&world));

    world.schedule(3);
    world.settle();
    assert!(is_placed(&world));
    assert_eq!((world.pods.len(), min_member(&world)), (4, Some(3)));
    run(&mut world);
    assert_eq!(readiness(&world).0, "True");
}

#[test]
fn pods_wait_for_the_group() {
    let mut world = World::new(gang_job());
    world.serve_gangs();
    for _ in 0..2 {
        let step = world.compute_step();
        let is_pod = |action: &Action| matches!(action, Action::CreatePod(_));
        assert!(!step.actions.iter().any(is_pod), "{:?}", step.actions);
        let create = Action::CreateGroup { min_member: 3 };
        assert!(step.actions.contains(&create), "{:?}", step.actions);
        world.job.status = Some(step.status);
    }

    let mut world = World::new(gang_job());
    world.gang.groups.push(GroupView {
        name: GROUP.into(),
        owner: Some("u".into()),
        deleting: true,
        min_member: 3,
        ..GroupView::default()
    });
    world.serve_gangs();
    world.settle();
    assert!(world.pods.is_empty());
    let message = "PodGroup dijob-j-u is being deleted";
    assert_eq!(readiness(&world), ("False", "GangWaiting", message));
    world.gang.groups.clear();
    world.settle();
    assert_eq!(world.pods.len(), 3);
}

#[test]
fn size_of_group_follows_floor_until_placed() {
    let mut world = start(job().spec(json!({"scheduling": {"gang": {}}})));
    assert_eq!((world.pods.len(), min_member(&world)), (4, Some(4)));
    set_collectors(&mut world, 5);
    assert_eq!((world.pods.len(), min_member(&world)), (7, Some(7)));
    set_collectors(&mut world, 1);
    assert_eq!((world.pods.len(), min_member(&world)), (3, Some(3)));
    run(&mut world);
    set_collectors(&mut world, 4);
    assert_eq!((world.pods.len(), min_member(&world)), (6, Some(3)));
    set_collectors(&mut world, 0);
    assert_eq!((world.pods.len(), min_member(&world)), (2, Some(2)));
}

#[test]
fn group_is_deleted_when_job_stops() {
    let mut world = placed();
    world.suspend_and_settle();
    assert!(world.group().is_none() && world.status().scheduling.is_none());
    world.job.spec.suspend = false;
    world.settle();
    assert_eq!((world.pods.len(), min_member(&world)), (3, Some(3)));
    assert!(!is_placed(&world));

    let mut world = placed();
    world.exit(COORDINATOR, 0, "Completed");
    world.settle();
    assert!(world.group().is_none() && world.status().scheduling.is_none());
}

#[test]
fn group_of_queued_job_exists_while_admitted() {
    let labels = json!({"labels": {"kueue.x-k8s.io/queue-name": "team"}});
    let mut world = World::new(gang_job().metadata(labels));
    world.serve_kueue();
    world.serve_gangs();
    world.settle();
    assert!(world.pods.is_empty() && world.group().is_none());
    assert_eq!(world.status().reason.as_deref(), Some("QueueWaiting"));
    world.admit(BASE);
    world.settle();
    assert_eq!((world.pods.len(), min_member(&world)), (3, Some(3)));
    run(&mut world);
    assert_eq!(world.pods.len(), 4);
    world.evict(BASE, "Preempted");
    world.settle();
    assert!(world.group().is_none() && world.status().scheduling.is_none());
}

#[test]
fn kept_failed_pod_leaves_the_group() {
    let mut world = placed();
    let name = world.wanted(Role::Collector).remove(0);
    world.exit(&name, 1, "Error");
    world.settle();
    wait(&mut world);
    world.settle();
    assert!(!world.pods[&name].in_gang);
    let collectors = world.wanted(Role::Collector);
    assert_eq!(collectors.len(), 2);
    assert!(collectors.iter().all(|name| world.pods[name].in_gang));
}

#[test]
fn replacement_does_not_wait_for_overflow() {
    let mut world = waiting();
    world.schedule(3);
    world.settle();
    let name = world.wanted(Role::Learner).remove(0);
    world.pods.get_mut(&name).unwrap().deleting = true;
    world.settle();
    world.remove_terminating_pods();
    wait(&mut world);
    world.settle();
    let next = world.wanted(Role::Learner).remove(0);
    assert!(next != name && world.pods.contains_key(&next));
    let is_waiting = |name: &String| !world.pods[name].is_on_node();
    assert!(world.wanted(Role::Collector).iter().any(is_waiting));
}

#[test]
fn lost_pods_of_the_floor_do_not_wait_for_each_other() {
    let mut world = waiting();
    world.schedule(3);
    world.settle();
    let on_nodes = world.pods.values_mut().filter(|pod| pod.is_on_node());
    let lost: Vec<_> = on_nodes.filter(|pod| pod.name != COORDINATOR).collect();
    assert_eq!(lost.len(), 2);
    for pod in lost {
        pod.deleting = true;
    }
    world.settle();
    let gang = world.status().scheduling.as_ref().unwrap();
    assert!(gang.placed && gang.min_member == 1, "{gang:?}");
}

#[test]
fn resumed_gang_starts_together_again() {
    let mut world = placed();
    let lost = world.wanted(Role::Learner).remove(0);
    world.exit(&lost, 1, "Error");
    world.settle();
    run(&mut world);
    world.suspend_and_settle();
    world.job.spec.suspend = false;
    world.settle();
    assert!(!is_placed(&world));
    // The second collector is not in the floor.
    assert_eq!(world.pods.len(), 3, "{:?}", world.pod_names());
}

#[test]
fn resumed_gang_waits_for_terminating_pods() {
    let mut world = placed();
    world.job.spec.suspend = true;
    world.settle();
    let gone = world.wanted(Role::Collector).remove(0);
    world.pods.remove(&gone);
    world.job.spec.suspend = false;
    world.settle();
    assert!(!world.pods.contains_key(&gone), "{:?}", world.pod_names());
    world.remove_terminating_pods();
    world.settle();
    assert_eq!(world.pods.len(), 3, "{:?}", world.pod_names());
}

#[test]
fn aggregator_of_another_scheduler_means_no_gang() {
    let gpus = json!({"limits": {"nvidia.com/gpu": "2"}});
    let learners = Job::test().learners_with(1, &gpus);
    let learners = learners.spec(json!({"scheduling": {"gang": {}}}));
    let mut world = World::new(learners.clone());
    world.aggregator = aggregator_with_scheduler("other");
    world.serve_gangs();
    world.settle();
    assert!(world.status().scheduling.is_none() && world.group().is_none());
    world.run_all();
    world.settle();
    let (status, reason, message) = readiness(&world);
    assert_eq!((status, reason), ("True", "NoGangScheduler"));
    let field = "spec.aggregator.template.spec.schedulerName of AggregatorConfig aggregator-config";
    assert!(message.contains(field), "{message}");

    let mut without_aggregators = World::new(gang_job());
    without_aggregators.aggregator = aggregator_with_scheduler("other");
    without_aggregators.serve_gangs();
    without_aggregators.settle();
    assert_eq!(min_member(&without_aggregators), Some(3));

    let mut changed = start(learners);
    assert_eq!(min_member(&changed), Some(3));
    run(&mut changed);
    changed.aggregator = aggregator_with_scheduler("other");
    changed.settle();
    assert!(is_placed(&changed) && min_member(&changed) == Some(1));
    let (_, reason, message) = readiness(&changed);
    assert_eq!(reason, "NoGangScheduler");
    let kept = "spec.scheduling.gang does not apply to new pods: ";
    assert!(message.starts_with(kept), "{message}");
}

#[test]
fn job_waits_while_its_group_is_foreign() {
    let mut world = World::new(gang_job());
    let foreign = GroupView {
        name: GROUP.into(),
        owner: Some("other".into()),
        min_member: 1,
        ..GroupView::default()
    };
    world.gang.groups.push(foreign.clone());
    world.serve_gangs();
    world.settle();
    assert!(world.pods.is_empty());
    assert_eq!(world.status().reason.as_deref(), Some("GangNameTaken"));
    assert_eq!(world.gang.groups, [foreign]);
    world.gang.groups.clear();
    world.settle();
    assert_eq!(world.pods.len(), 3);
}

#[test]
fn scheduler_without_groups_starts_floor_first() {
    let mut world = World::new(gang_job());
    world.serve_gangs();
    world.gang.scheduler = Some(GangScheduler::Yunikorn);
    world.settle();
    assert_eq!(world.pods.len(), 3);
    assert!(world.gang.groups.is_empty());
    for pod in world.pods.values_mut() {
        pod.scheduled = Ok(true);
    }
    world.settle();
    assert_eq!(world.pods.len(), 4);
}

#[test]
fn gang_that_is_no_longer_wanted_keeps_its_group() {
    let mut world = waiting();
    world.job.spec.scheduling = None;
    world.settle();
    assert_eq!(min_member(&world), Some(1));
    run(&mut world);
    assert_eq!(world.pods.len(), 4);
    world.suspend_and_settle();
    assert!(world.group().is_none());
    world.job.spec.suspend = false;
    world.settle();
    assert_eq!(world.pods.len(), 4);
    assert!(world.group().is_none() && world.status().scheduling.is_none());
}
