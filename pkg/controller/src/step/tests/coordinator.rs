//! The coordinator: how often it is started again, and what befalls it from outside.

use std::collections::HashMap;

use di_api::{ConditionType, Phase, Reason, Role, condition, is_true, names};
use di_plan::{End, PodPhase};
use jiff::SignedDuration;
use kube::ResourceExt;

use super::*;
use crate::step::Step;

#[test]
fn f14_a_failed_coordinator_is_started_again_within_its_limit_and_counted_once() {
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
    world.kubelet_ends_deleted();
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Created));
    assert!(world.pods.contains_key(COORDINATOR));
    world.run(COORDINATOR);
    world.exit(COORDINATOR, 1, "Error");
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Failed));
    let failed = condition(&world.status().conditions, ConditionType::Failed).unwrap();
    let told = &failed.message;
    assert!(
        told.ends_with(", and was started again once before"),
        "{told}"
    );
}

#[test]
fn no_other_pod_takes_the_room_of_one_that_is_awaited() {
    let mut world = running();
    world.job.spec.backoff_limit = 9;
    let fail = |world: &mut World| {
        world.exit(COORDINATOR, 1, "Error");
        world.settle();
    };
    fail(&mut world);
    world.kubelet_ends_deleted();
    world.settle();
    world.run(COORDINATOR);
    fail(&mut world);
    let not_before = world.status().coordinator.not_before.clone().unwrap().0;
    // As what a quota has refused would, more collectors wait for room.
    world.job.spec.collector.as_mut().unwrap().replicas = 4;
    let replicas = |world: &World| {
        let planned = world.wanted(Role::Collector);
        let made = planned.iter().filter(|name| world.pods.contains_key(*name));
        (made.count(), planned.len())
    };
    world.settle();
    assert_eq!(replicas(&world), (2, 4), "it waits");
    let served = world.wanted(Role::Collector);
    assert!(served.iter().all(|name| world.services.contains_key(name)));
    world.now = not_before;
    world.settle();
    assert!(world.pods[COORDINATOR].deleting);
    assert_eq!(replicas(&world), (2, 4), "it is in the way of the next one");
    world.kubelet_ends_deleted();
    world.settle();
    assert!(world.pods.contains_key(COORDINATOR));
    assert_eq!(replicas(&world), (4, 4));
}

#[test]
fn one_that_is_evicted_for_its_own_limit_is_counted() {
    let mut world = running();
    evict(&mut world);
    world.pods.get_mut(COORDINATOR).unwrap().over_its_limit = true;
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Failed));
}

#[test]
fn an_evicted_coordinator_is_started_again_uncounted() {
    let mut world = running();
    let pod = world.pods.get_mut(COORDINATOR).unwrap();
    pod.phase = PodPhase::Failed;
    pod.disrupted = true;
    pod.end = Some(Box::new(End {
        exit_code: None,
        reason: "Evicted".into(),
        message: None,
        at: None,
    }));
    world.settle();
    world.kubelet_ends_deleted();
    world.settle();
    assert!(world.pods.contains_key(COORDINATOR));
    assert_eq!(
        (world.status().restarts, world.status().phase),
        (0, Some(Phase::Created))
    );
}

fn is_running(world: &World) -> bool {
    is_true(&world.status().conditions, ConditionType::Running)
}

fn reasons(step: &Step) -> Vec<(Reason, bool)> {
    step.notes
        .iter()
        .map(|note| (note.reason, note.warning))
        .collect()
}

#[test]
fn a_coordinator_that_somebody_deletes_is_warned_of_once() {
    let mut world = running();
    let coordinator = world.pods.get_mut(COORDINATOR).unwrap();
    coordinator.deleting = true;
    assert_eq!(reasons(&world.look()), [(Reason::CoordinatorDeleted, true)]);
    world.settle();
    assert!(!is_running(&world));
    assert_eq!(reasons(&world.look()), []);

    world.pods.remove(COORDINATOR);
    assert_eq!(reasons(&world.look()), [], "it was told of");
    world.settle();
    assert!(world.pods.contains_key(COORDINATOR));
}

#[test]
fn a_coordinator_that_a_user_restarts_does_not_end_the_job_with_its_exit() {
    let mut world = running();
    let uid = world.pods[COORDINATOR].uid.clone();
    world
        .job
        .annotations_mut()
        .insert(names::RESTART_ANNOTATION.to_owned(), uid.clone());
    let step = world.look();
    assert_eq!(reasons(&step), [(Reason::CoordinatorRestarted, false)]);
    assert_eq!(step.status.failed_coordinator.as_ref(), Some(&uid));
    world.settle();
    assert!(world.pods[COORDINATOR].deleting && !is_running(&world));

    world.exit(COORDINATOR, 0, "Completed");
    world.settle();
    world.kubelet_ends_deleted();
    world.settle();
    assert_ne!(world.pods[COORDINATOR].uid, uid);
    world.run(COORDINATOR);
    world.settle();
    assert!(is_running(&world), "it holds once");
    assert_eq!(
        (world.status().restarts, world.status().phase),
        (0, Some(Phase::Running))
    );
}

#[test]
fn that_the_coordinator_runs_is_not_told_again_after_the_status_was_lost() {
    let mut world = World::new(JOB);
    world.settle();
    world.run(COORDINATOR);
    assert_eq!(
        reasons(&world.look()),
        [(Reason::CoordinatorRunning, false)]
    );
    world.settle();
    world.job.status = None;
    let asked = world.look().ask;
    world.asked = asked.into_iter().map(|name| (name, true)).collect();
    assert_eq!(reasons(&world.look()), [(Reason::ReplicaAdopted, false)]);
    world.settle();
    assert!(is_running(&world));
    assert_eq!(reasons(&world.look()), []);
}

#[test]
fn a_coordinator_that_is_gone_at_once_is_warned_of_too() {
    let mut world = running();
    world.pods.remove(COORDINATOR);
    let step = world.look();
    assert_eq!(step.ask, [COORDINATOR], "the cache may be behind");
    world.asked = HashMap::from([(COORDINATOR.to_owned(), false)]);
    assert_eq!(reasons(&world.look()), [(Reason::CoordinatorDeleted, true)]);
    world.settle();
    assert!(world.pods.contains_key(COORDINATOR));
}

#[test]
fn a_job_is_unknown_while_its_coordinators_node_is_lost() {
    let mut world = running();
    let coordinator = |world: &mut World, phase| {
        world.pods.get_mut(COORDINATOR).unwrap().phase = phase;
    };
    coordinator(&mut world, PodPhase::Unknown);
    assert_eq!(reasons(&world.look()), [(Reason::NodeLost, true)]);
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Unknown));
    assert_eq!(world.status().reason.as_deref(), Some("NodeLost"));
    assert!(!is_running(&world));

    coordinator(&mut world, PodPhase::Running);
    assert_eq!(
        reasons(&world.look()),
        [(Reason::CoordinatorRunning, false)]
    );
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Running));

    // Kubernetes deletes it in the end, and nothing comes of that before the node answers.
    coordinator(&mut world, PodPhase::Unknown);
    world.settle();
    let lost = world.pods.get_mut(COORDINATOR).unwrap();
    lost.deleting = true;
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Unknown));
}

#[test]
fn a_coordinator_that_is_deleted_again_and_again_backs_off_though_its_kubelets_clock_is_behind() {
    let mut world = running();
    for attempt in 1..4 {
        let pod = world.pods.get_mut(COORDINATOR).unwrap();
        pod.started = Some(world.now - SignedDuration::from_hours(1));
        pod.deleting = true;
        world.settle();
        let next = world.status().coordinator.clone();
        assert_eq!(next.attempt, attempt);
        world.kubelet_ends_deleted();
        world.now = next.not_before.map_or(world.now, |at| at.0);
        world.settle();
        world.run(COORDINATOR);
        world.settle();
    }
}

/// The coordinator fails at once, and how many seconds later another is there.
fn seconds_until_another(world: &mut World, fail: impl Fn(&mut World)) -> i64 {
    let uid = world.pods[COORDINATOR].uid.clone();
    fail(world);
    world.settle();
    world.kubelet_ends_deleted();
    for seconds in 0..1000 {
        world.settle();
        world.kubelet_ends_deleted();
        world.settle();
        if world
            .pods
            .get(COORDINATOR)
            .is_some_and(|pod| pod.uid != uid)
        {
            return seconds;
        }
        let again = world.look().again;
        assert!(again.is_some(), "it is looked at in time");
        world.now += SignedDuration::from_secs(1);
    }
    panic!("there is none: {:#?}", world.status());
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

/// Its kubelet has forgotten when it started.
fn forget(world: &mut World) {
    evict(world);
    world.pods.get_mut(COORDINATOR).unwrap().started = None;
}

fn throw_out(world: &mut World) {
    world.pods.get_mut(COORDINATOR).unwrap().deleting = true;
}

fn vanish(world: &mut World) {
    world.pods.remove(COORDINATOR);
}

#[test]
fn a_coordinator_that_is_lost_again_and_again_is_started_again_ever_later() {
    for (how, lose) in [
        ("crash", crash as fn(&mut World)),
        ("evicted", evict),
        ("forgotten", forget),
        ("thrown out", throw_out),
        ("gone", vanish),
    ] {
        let mut world = running();
        world.job.spec.backoff_limit = 1000;
        let waits: Vec<_> = (0..8)
            .map(|_| seconds_until_another(&mut world, lose))
            .collect();
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300], "{how}");
        // One that ran for long was well.
        world.run(COORDINATOR);
        world.settle();
        world.now += SignedDuration::from_secs(600);
        assert_eq!(seconds_until_another(&mut world, lose), 0, "{how}");
        assert_eq!(seconds_until_another(&mut world, lose), 10, "{how}");
    }
}

#[test]
fn a_failed_coordinator_stays_for_its_log_while_the_next_one_waits_unless_a_user_wants_it_at_once()
{
    let mut world = running();
    world.job.spec.backoff_limit = 1000;
    assert_eq!(seconds_until_another(&mut world, crash), 0);
    crash(&mut world);
    let step = world.look();
    assert!(step.notes[0].message.ends_with("again in 10 s"));
    world.settle();
    let failed = &world.pods[COORDINATOR];
    assert!(failed.end.is_some() && !failed.deleting);
    assert_eq!(world.status().phase, Some(Phase::Created));
    assert_eq!(world.status().restarts, 2);

    let uid = failed.uid.clone();
    let annotations = world.job.annotations_mut();
    annotations.insert(names::RESTART_ANNOTATION.to_owned(), uid);
    world.settle();
    world.kubelet_ends_deleted();
    world.settle();
    assert!(world.pods[COORDINATOR].end.is_none());
}

#[test]
fn what_a_user_does_to_a_coordinator_is_no_failure() {
    let mut world = running();
    for _ in 0..3 {
        let uid = world.pods[COORDINATOR].uid.clone();
        let annotations = world.job.annotations_mut();
        annotations.insert(names::RESTART_ANNOTATION.to_owned(), uid);
        assert_eq!(seconds_until_another(&mut world, |_| {}), 0);
        world.run(COORDINATOR);
        world.settle();
    }
    for suspend in [true, false, true, false] {
        world.job.spec.suspend = suspend;
        world.settle();
        world.kubelet_ends_deleted();
        world.settle();
    }
    assert!(world.pods.contains_key(COORDINATOR));
}

#[test]
fn a_job_whose_coordinator_is_gone_does_not_say_that_it_runs() {
    let mut world = running();
    throw_out(&mut world);
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Created));
    assert!(!is_running(&world));

    // Even if the next one is refused.
    let mut world = running();
    vanish(&mut world);
    world.asked = HashMap::from([(COORDINATOR.to_owned(), false)]);
    let step = world.look();
    assert_eq!(step.status.phase, Some(Phase::Created));
}

#[test]
fn a_job_that_is_no_longer_held_does_not_say_that_it_is() {
    let mut world = running();
    world.hold();
    world.job.spec.suspend = false;
    let step = world.look();
    assert_eq!(step.status.phase, Some(Phase::Created));
    assert!(!is_true(&step.status.conditions, ConditionType::Suspended));
    let reasons_of_all: Vec<_> = (0..3)
        .flat_map(|_| {
            let step = world.look();
            for action in step.actions.clone() {
                world.act(action);
            }
            let reasons = reasons(&step);
            world.job.status = Some(step.status);
            reasons
        })
        .collect();
    assert_eq!(reasons_of_all, [], "who makes the pods tells of them");

    // One that was held from the beginning has not had any.
    let mut world = World::new(JOB);
    world.job.spec.suspend = true;
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Suspended));
    world.job.spec.suspend = false;
    assert_eq!(world.look().status.phase, None);
}
