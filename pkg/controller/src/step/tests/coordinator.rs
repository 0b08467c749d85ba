//! Tests of the coordinator: restarts, backoff, deletion and node loss.

use std::collections::HashMap;

use di_api::{ConditionType, Phase, Reason, Role, find_condition, is_condition_true, names};
use di_plan::{End, PodPhase};
use jiff::SignedDuration;
use kube::ResourceExt;

use super::*;
use crate::step::Step;

#[test]
fn f14_failed_coordinator_restarts_up_to_its_backoff_limit() {
    let mut world = running();
    world.job.spec.backoff_limit = 1;
    world.exit(COORDINATOR, 1, "Error");
    world.settle();
    assert_eq!(world.status().restarts, 1);
    world.settle();
    assert_eq!(
        world.status().restarts,
        1,
        "the same failure is counted once"
    );
    world.remove_terminating_pods();
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Created));
    assert!(world.pods.contains_key(COORDINATOR));
    world.run(COORDINATOR);
    world.exit(COORDINATOR, 1, "Error");
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Failed));
    let failed = find_condition(&world.status().conditions, ConditionType::Failed).unwrap();
    let message = &failed.message;
    assert!(message.ends_with(" after 1 restart"), "{message}");
}

#[test]
fn replica_is_not_created_before_restarted_coordinator() {
    let mut world = running();
    world.job.spec.backoff_limit = 9;
    let fail = |world: &mut World| {
        world.exit(COORDINATOR, 1, "Error");
        world.settle();
    };
    fail(&mut world);
    world.remove_terminating_pods();
    world.settle();
    world.run(COORDINATOR);
    fail(&mut world);
    let not_before = world.status().coordinator.not_before.clone().unwrap().0;
    // More collectors wait, as after a rejection by a quota.
    world.job.spec.collector.as_mut().unwrap().replicas = 4;
    let replicas = |world: &World| {
        let planned = world.wanted(Role::Collector);
        let created = planned.iter().filter(|name| world.pods.contains_key(*name));
        (created.count(), planned.len())
    };
    world.settle();
    assert_eq!(replicas(&world), (2, 4), "backoff");
    let planned = world.wanted(Role::Collector);
    assert!(planned.iter().all(|name| world.services.contains_key(name)));
    world.now = not_before;
    world.settle();
    assert!(world.pods[COORDINATOR].deleting);
    assert_eq!(
        replicas(&world),
        (2, 4),
        "the terminating pod blocks the name"
    );
    world.remove_terminating_pods();
    world.settle();
    assert!(world.pods.contains_key(COORDINATOR));
    assert_eq!(replicas(&world), (4, 4));
}

#[test]
fn coordinator_evicted_for_own_limit_fails_job() {
    let mut world = running();
    evict(&mut world);
    world.pods.get_mut(COORDINATOR).unwrap().exceeded_disk_limit = true;
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Failed));
}

#[test]
fn evicted_coordinator_restarts_without_being_counted() {
    let mut world = running();
    let pod = world.pods.get_mut(COORDINATOR).unwrap();
    pod.phase = PodPhase::Failed;
    pod.disrupted = true;
    pod.end = Some(Box::new(End {
        exit_code: None,
        reason: "Evicted".into(),
        message: None,
        at: None,
        log_tail: None,
    }));
    world.settle();
    world.remove_terminating_pods();
    world.settle();
    assert!(world.pods.contains_key(COORDINATOR));
    assert_eq!(
        (world.status().restarts, world.status().phase),
        (0, Some(Phase::Created))
    );
}

fn is_running(world: &World) -> bool {
    is_condition_true(&world.status().conditions, ConditionType::Running)
}

fn reasons(step: &Step) -> Vec<(Reason, bool)> {
    step.events
        .iter()
        .map(|event| (event.reason, event.warning))
        .collect()
}

#[test]
fn deleted_coordinator_emits_one_warning() {
    let mut world = running();
    let coordinator = world.pods.get_mut(COORDINATOR).unwrap();
    coordinator.deleting = true;
    assert_eq!(
        reasons(&world.compute_step()),
        [(Reason::CoordinatorDeleted, true)]
    );
    world.settle();
    assert!(!is_running(&world));
    assert_eq!(reasons(&world.compute_step()), []);

    world.pods.remove(COORDINATOR);
    assert_eq!(reasons(&world.compute_step()), [], "already reported");
    world.settle();
    assert!(world.pods.contains_key(COORDINATOR));
}

#[test]
fn user_restart_of_coordinator_does_not_end_job() {
    let mut world = running();
    let uid = world.pods[COORDINATOR].uid.clone();
    world
        .job
        .annotations_mut()
        .insert(names::RESTART_ANNOTATION.to_owned(), uid.clone());
    let step = world.compute_step();
    assert_eq!(reasons(&step), [(Reason::CoordinatorRestarted, false)]);
    assert_eq!(step.status.failed_coordinator.as_ref(), Some(&uid));
    world.settle();
    assert!(world.pods[COORDINATOR].deleting && !is_running(&world));

    world.exit(COORDINATOR, 0, "Completed");
    world.settle();
    world.remove_terminating_pods();
    world.settle();
    assert_ne!(world.pods[COORDINATOR].uid, uid);
    world.run(COORDINATOR);
    world.settle();
    assert!(is_running(&world), "the annotation names one pod");
    assert_eq!(
        (world.status().restarts, world.status().phase),
        (0, Some(Phase::Running))
    );
}

#[test]
fn lost_status_does_not_repeat_running_event() {
    let mut world = World::new(job());
    world.settle();
    world.run(COORDINATOR);
    assert_eq!(
        reasons(&world.compute_step()),
        [(Reason::CoordinatorRunning, false)]
    );
    world.settle();
    world.job.status = None;
    let unverified = world.compute_step().needs_live_read;
    world.live_reads = unverified.into_iter().map(|name| (name, true)).collect();
    assert_eq!(
        reasons(&world.compute_step()),
        [(Reason::ReplicaAdopted, false)]
    );
    world.settle();
    assert!(is_running(&world));
    assert_eq!(reasons(&world.compute_step()), []);
}

#[test]
fn vanished_coordinator_emits_one_warning() {
    let mut world = running();
    world.pods.remove(COORDINATOR);
    let step = world.compute_step();
    assert_eq!(step.needs_live_read, [COORDINATOR], "the cache may lag");
    world.live_reads = HashMap::from([(COORDINATOR.to_owned(), false)]);
    assert_eq!(
        reasons(&world.compute_step()),
        [(Reason::CoordinatorDeleted, true)]
    );
    world.settle();
    assert!(world.pods.contains_key(COORDINATOR));
}

#[test]
fn lost_node_of_coordinator_sets_phase_unknown() {
    let mut world = running();
    let coordinator = |world: &mut World, phase| {
        world.pods.get_mut(COORDINATOR).unwrap().phase = phase;
    };
    coordinator(&mut world, PodPhase::Unknown);
    assert_eq!(reasons(&world.compute_step()), [(Reason::NodeLost, true)]);
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Unknown));
    assert_eq!(world.status().reason.as_deref(), Some("NodeLost"));
    assert!(!is_running(&world));

    coordinator(&mut world, PodPhase::Running);
    assert_eq!(
        reasons(&world.compute_step()),
        [(Reason::CoordinatorRunning, false)]
    );
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Running));

    // Kubernetes then deletes the pod, which stays terminating until the node responds.
    coordinator(&mut world, PodPhase::Unknown);
    world.settle();
    let lost = world.pods.get_mut(COORDINATOR).unwrap();
    lost.deleting = true;
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Unknown));
}

#[test]
fn repeated_deletion_backs_off_despite_late_kubelet_clock() {
    let mut world = running();
    for attempt in 1..4 {
        let pod = world.pods.get_mut(COORDINATOR).unwrap();
        pod.started = Some(world.now - SignedDuration::from_hours(1));
        pod.deleting = true;
        world.settle();
        let next = world.status().coordinator.clone();
        assert_eq!(next.attempt, attempt);
        world.remove_terminating_pods();
        world.now = next.not_before.map_or(world.now, |at| at.0);
        world.settle();
        world.run(COORDINATOR);
        world.settle();
    }
}

/// Fails the coordinator and returns the seconds until the next pod exists.
fn seconds_until_restart(world: &mut World, fail: impl Fn(&mut World)) -> i64 {
    let uid = world.pods[COORDINATOR].uid.clone();
    fail(world);
    world.settle();
    world.remove_terminating_pods();
    for seconds in 0..1000 {
        world.settle();
        world.remove_terminating_pods();
        world.settle();
        if world
            .pods
            .get(COORDINATOR)
            .is_some_and(|pod| pod.uid != uid)
        {
            return seconds;
        }
        let requeue_after = world.compute_step().requeue_after;
        assert!(requeue_after.is_some(), "no reconcile is scheduled");
        world.now += SignedDuration::from_secs(1);
    }
    panic!("no new pod: {:#?}", world.status());
}

fn crash(world: &mut World) {
    if world.pods[COORDINATOR].started.is_none() {
        world.run(COORDINATOR);
        world.settle();
    }
    world.exit(COORDINATOR, 1, "Error");
}

fn evict(world: &mut World) {
    world.exit(COORDINATOR, 137, "Evicted");
    world.pods.get_mut(COORDINATOR).unwrap().disrupted = true;
}

/// Evicts the pod; the kubelet has lost its start time.
fn evict_without_start_time(world: &mut World) {
    evict(world);
    world.pods.get_mut(COORDINATOR).unwrap().started = None;
}

fn delete_pod(world: &mut World) {
    world.pods.get_mut(COORDINATOR).unwrap().deleting = true;
}

fn remove_pod(world: &mut World) {
    world.pods.remove(COORDINATOR);
}

#[test]
fn repeated_loss_of_coordinator_backs_off() {
    for (cause, fail) in [
        ("crash", crash as fn(&mut World)),
        ("evicted", evict),
        ("evicted without start time", evict_without_start_time),
        ("deleted", delete_pod),
        ("removed", remove_pod),
    ] {
        let mut world = running();
        world.job.spec.backoff_limit = 1000;
        let delays: Vec<_> = (0..8)
            .map(|_| seconds_until_restart(&mut world, fail))
            .collect();
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300], "{cause}");
        // A long run resets the backoff.
        world.run(COORDINATOR);
        world.settle();
        world.now += SignedDuration::from_secs(600);
        assert_eq!(seconds_until_restart(&mut world, fail), 0, "{cause}");
        assert_eq!(seconds_until_restart(&mut world, fail), 10, "{cause}");
    }
}

#[test]
fn failed_coordinator_is_kept_until_backoff_or_user_restart() {
    let mut world = running();
    world.job.spec.backoff_limit = 1000;
    assert_eq!(seconds_until_restart(&mut world, crash), 0);
    crash(&mut world);
    let step = world.compute_step();
    assert!(step.events[0].message.ends_with("restarting it in 10 s"));
    world.settle();
    let failed = &world.pods[COORDINATOR];
    assert!(failed.end.is_some() && !failed.deleting);
    assert_eq!(world.status().phase, Some(Phase::Created));
    assert_eq!(world.status().restarts, 2);

    let uid = failed.uid.clone();
    let annotations = world.job.annotations_mut();
    annotations.insert(names::RESTART_ANNOTATION.to_owned(), uid);
    world.settle();
    world.remove_terminating_pods();
    world.settle();
    assert!(world.pods[COORDINATOR].end.is_none());
}

#[test]
fn user_restart_or_suspension_starts_no_backoff() {
    let mut world = running();
    for _ in 0..3 {
        let uid = world.pods[COORDINATOR].uid.clone();
        let annotations = world.job.annotations_mut();
        annotations.insert(names::RESTART_ANNOTATION.to_owned(), uid);
        assert_eq!(seconds_until_restart(&mut world, |_| {}), 0);
        world.run(COORDINATOR);
        world.settle();
    }
    for suspend in [true, false, true, false] {
        world.job.spec.suspend = suspend;
        world.settle();
        world.remove_terminating_pods();
        world.settle();
    }
    assert!(world.pods.contains_key(COORDINATOR));
}

#[test]
fn vanished_coordinator_sets_phase_created() {
    let mut world = running();
    delete_pod(&mut world);
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Created));
    assert!(!is_running(&world));

    // Also if the next create is rejected.
    let mut world = running();
    remove_pod(&mut world);
    world.live_reads = HashMap::from([(COORDINATOR.to_owned(), false)]);
    let step = world.compute_step();
    assert_eq!(step.status.phase, Some(Phase::Created));
}

#[test]
fn resumed_job_is_not_reported_as_suspended() {
    let mut world = running();
    world.suspend_and_settle();
    world.job.spec.suspend = false;
    let step = world.compute_step();
    assert_eq!(step.status.phase, Some(Phase::Created));
    assert!(!is_condition_true(
        &step.status.conditions,
        ConditionType::Suspended
    ));
    let reasons_of_all: Vec<_> = (0..3)
        .flat_map(|_| {
            let step = world.compute_step();
            for action in step.actions.clone() {
                world.apply(action);
            }
            let reasons = reasons(&step);
            world.job.status = Some(step.status);
            reasons
        })
        .collect();
    assert_eq!(reasons_of_all, [], "`apply_actions` emits the events");

    // A job that was suspended from the start never had pods.
    let mut world = World::new(job());
    world.job.spec.suspend = true;
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Suspended));
    world.job.spec.suspend = false;
    assert_eq!(world.compute_step().status.phase, None);
}
