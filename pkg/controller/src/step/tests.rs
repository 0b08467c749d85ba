//! The step as a whole; `tests/` has a file for each file of rules.

mod conditions;
mod coordinator;
mod ending;
mod exploration;
mod remains;
mod replicas;
mod states;
mod units;
mod world;

use di_api::Phase;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Action;
use world::{COORDINATOR, JOB, World};

fn running() -> World {
    World::running(JOB)
}

#[test]
fn a_job_goes_from_created_to_running_to_succeeded() {
    let mut world = World::new(JOB);
    let first = world.look();
    assert_eq!(first.status.plan.len(), 3, "names are planned first");
    assert_eq!(first.status.phase, None);
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Created));
    assert_eq!(world.pods.len(), 4);
    assert_eq!(world.services.len(), 4);
    assert_eq!(world.status_writes, 2, "the plan, then Created");
    world.run_all();
    world.settle();
    let status = world.status();
    assert_eq!(status.phase, Some(Phase::Running));
    assert_eq!(status.collectors_ready.as_deref(), Some("2/2"));
    assert_eq!(status.replica_status["Collector"].active, 2);
    world.exit(COORDINATOR, 0, "Completed");
    world.settle();
    world.kubelet_ends_deleted();
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Succeeded));
    assert_eq!(world.pod_names(), [COORDINATOR]);
    assert!(world.services.is_empty());
    assert_eq!(
        world.status().replica_status.len(),
        1,
        "nobody is counted as active any more"
    );
    let types: Vec<_> = world
        .status()
        .conditions
        .iter()
        .map(|c| (c.type_.as_str(), c.status.as_str()))
        .collect();
    for expected in [
        ("Created", "True"),
        ("Running", "False"),
        ("Succeeded", "True"),
    ] {
        assert!(types.contains(&expected), "{types:?}");
    }
}

#[test]
fn an_invalid_job_fails_before_anything_is_made() {
    let mut world = World::new(&JOB.replace(
        "[{name: di-container, image: c}]",
        "[{name: main, image: c}]",
    ));
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Failed));
    assert_eq!(world.status().reason.as_deref(), Some("InvalidSpec"));
    assert!(world.pods.is_empty());
}

#[test]
fn a_job_that_is_being_deleted_is_left_alone() {
    let mut world = running();
    world.pods.clear();
    world.job.metadata.deletion_timestamp = Some(Time(world.now));
    let step = world.look();
    assert!(step.actions.is_empty());
    assert_eq!(Some(&step.status), world.job.status.as_ref());
}

#[test]
fn pods_of_an_older_job_of_the_same_name_are_not_touched() {
    let mut world = World::new(JOB);
    let mut old = running();
    old.exit(COORDINATOR, 0, "Completed");
    for (name, mut pod) in old.pods {
        pod.owner = Some("old-uid".into());
        world.pods.insert(name, pod);
    }
    let step = world.look();
    assert_eq!(step.status.phase, None);
    assert!(
        !step
            .actions
            .iter()
            .any(|a| matches!(a, Action::DeletePod { .. }))
    );
}

#[test]
fn no_replica_is_made_while_an_older_jobs_coordinator_has_the_address_of_its_own() {
    let mut world = World::new(JOB);
    let mut old = running().pods.remove(COORDINATOR).unwrap();
    (old.owner, old.deleting) = (Some("old-uid".into()), true);
    world.pods.insert(COORDINATOR.into(), old);
    let planned = world.look().status;
    assert_eq!(planned.plan.len(), 3);
    world.job.status = Some(planned);
    let is_first = |action: &Action| match action {
        Action::CreatePod(entry) | Action::CreateService(entry) => entry.name == COORDINATOR,
        _ => false,
    };
    let actions = world.look().actions;
    assert_eq!(actions.len(), 2, "pod and service of the coordinator");
    assert!(actions.iter().all(is_first), "{actions:?}");
    world.pods.remove(COORDINATOR);
    world.settle();
    assert_eq!(world.pods.len(), 4);
}
