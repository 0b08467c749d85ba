//! The coordinator: how often it is started again, and what befalls it from outside.

use std::collections::HashMap;

use di_api::{ConditionType, Phase, Reason, is_true, names};
use di_plan::{End, PodPhase};
use kube::ResourceExt;

use super::*;
use crate::step::Step;

#[test]
fn a_failed_coordinator_is_started_again_within_its_limit_and_counted_once() {
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
