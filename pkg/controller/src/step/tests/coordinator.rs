//! What befalls a running coordinator from outside.

use di_api::{ConditionType, is_true};

use super::*;

fn is_running(world: &World) -> bool {
    is_true(&world.status().conditions, ConditionType::Running)
}

fn reasons(step: &Step) -> Vec<(&'static str, bool)> {
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
    assert_eq!(reasons(&world.look()), [("CoordinatorDeleted", true)]);
    world.settle();
    assert!(!is_running(&world));
    assert_eq!(reasons(&world.look()), []);

    world.pods.remove(COORDINATOR);
    assert_eq!(reasons(&world.look()), [], "it was told of");
    world.settle();
    assert!(world.pods.contains_key(COORDINATOR));
}

#[test]
fn a_coordinator_that_is_gone_at_once_is_warned_of_too() {
    let mut world = running();
    world.pods.remove(COORDINATOR);
    let step = world.look();
    assert_eq!(step.ask, [COORDINATOR], "the cache may be behind");
    world.asked = HashMap::from([(COORDINATOR.to_owned(), false)]);
    assert_eq!(reasons(&world.look()), [("CoordinatorDeleted", true)]);
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
    assert_eq!(reasons(&world.look()), [("NodeLost", true)]);
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Unknown));
    assert!(!is_running(&world));

    coordinator(&mut world, PodPhase::Running);
    assert_eq!(reasons(&world.look()), [("CoordinatorRunning", false)]);
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
