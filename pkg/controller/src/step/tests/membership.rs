use di_api::{DIJobStatus, ListWhen, Phase, Role};

use super::{
    fake_cluster::{COORDINATOR, World, job},
    running,
};
use crate::status_change::StatusChange;

/// Returns the generation and the number of listed replicas.
fn members(world: &World) -> (i64, usize) {
    let status = world.status();
    let listed = status.plan.iter().filter(|entry| entry.listed);
    (status.membership_generation.unwrap(), listed.count())
}

#[test]
fn replicas_are_listed_in_one_generation_once_they_have_nodes() {
    let mut world = World::new(job());
    world.settle();
    assert_eq!(members(&world), (0, 0));
    world.run_all();
    world.settle();
    assert_eq!(members(&world), (1, 3), "one write, one generation");
    world.settle();
    assert_eq!(members(&world), (1, 3));
}

#[test]
fn replacement_of_lost_replica_is_one_change() {
    for (list_when, listed) in [(ListWhen::Scheduled, 3), (ListWhen::Ready, 2)] {
        let mut world = running();
        let collector = world.job.spec.collector.as_mut().unwrap();
        collector.list_when = list_when;
        world.settle();
        assert_eq!(members(&world), (1, 3));
        let lost = world.wanted(Role::Collector)[0].clone();
        world.exit(&lost, 1, "Error");
        world.settle();
        assert_eq!(members(&world), (2, listed), "{list_when:?}");
        for name in world.wanted(Role::Collector) {
            world.run(&name);
        }
        world.settle();
        let generation = if listed == 3 { 2 } else { 3 };
        assert_eq!(members(&world), (generation, 3), "{list_when:?}");
    }
}

#[test]
fn unready_replica_is_listed_again_when_ready() {
    let mut world = running();
    world.job.spec.collector.as_mut().unwrap().list_when = ListWhen::Ready;
    let name = world.wanted(Role::Collector)[0].clone();
    for (is_ready, expected) in [(false, (2, 2)), (true, (3, 3))] {
        world.pods.get_mut(&name).unwrap().ready = is_ready;
        let step = world.compute_step();
        let change = StatusChange::between(world.job.status.as_ref(), &step);
        assert_eq!(change, StatusChange::Minor, "it is debounced");
        world.settle();
        assert_eq!(members(&world), expected);
    }
}

#[test]
fn suspended_or_ended_job_lists_none() {
    let mut world = running();
    world.suspend_and_settle();
    assert_eq!(members(&world), (2, 0));
    world.job.spec.suspend = false;
    world.settle();
    world.run_all();
    world.settle();
    assert_eq!(
        members(&world),
        (3, 3),
        "the same names, but a new generation"
    );
    world.exit(COORDINATOR, 0, "Completed");
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Succeeded));
    assert_eq!(members(&world), (4, 0));
}

#[test]
fn ended_job_of_older_version_is_not_counted() {
    let mut world = running();
    world.job.status = Some(DIJobStatus {
        phase: Some(Phase::Failed),
        ..DIJobStatus::default()
    });
    world.settle();
    assert_eq!(world.status().membership_generation, None);
}
