//! Tests of the whole step. `tests/` has a file for each file of rules.

mod clean_up;
mod conditions;
mod coordinator;
mod ending;
mod exploration;
mod failures;
mod fake_cluster;
mod fake_gang_scheduler;
mod fake_kueue;
mod gang;
mod learner_groups;
mod lost_creates;
mod membership;
mod pod_states;
mod queueing;
mod replicas;
mod units;

use di_api::Phase;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::Action;
use fake_cluster::{COORDINATOR, World, job};

fn running() -> World {
    World::running(job())
}

#[test]
fn job_passes_created_running_and_succeeded() {
    let mut world = World::new(job());
    let first = world.compute_step();
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
    world.remove_terminating_pods();
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Succeeded));
    assert_eq!(world.pod_names(), [COORDINATOR]);
    assert!(world.services.is_empty());
    assert_eq!(
        world.status().replica_status.len(),
        1,
        "no replica counts as active"
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
fn invalid_job_fails_before_any_create() {
    let template = json!({"spec": {"containers": [{"name": "main", "image": "c"}]}});
    let mut world = World::new(job().spec(json!({"coordinator": {"template": template}})));
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Failed));
    assert_eq!(world.status().reason.as_deref(), Some("InvalidSpec"));
    assert!(world.pods.is_empty());
}

#[test]
fn deleted_job_gets_no_actions() {
    let mut world = running();
    world.pods.clear();
    world.job.metadata.deletion_timestamp = Some(Time(world.now));
    let step = world.compute_step();
    assert!(step.actions.is_empty());
    assert_eq!(Some(&step.status), world.job.status.as_ref());
}

#[test]
fn pods_of_previous_job_are_not_deleted() {
    let mut world = World::new(job());
    let mut old = running();
    old.exit(COORDINATOR, 0, "Completed");
    for (name, mut pod) in old.pods {
        pod.owner = Some("old-uid".into());
        world.pods.insert(name, pod);
    }
    let step = world.compute_step();
    assert_eq!(step.status.phase, None);
    assert!(
        !step
            .actions
            .iter()
            .any(|a| matches!(a, Action::DeletePod { .. }))
    );
}

#[test]
fn replica_waits_for_previous_coordinator_to_terminate() {
    let mut world = World::new(job());
    let mut old = running().pods.remove(COORDINATOR).unwrap();
    (old.owner, old.deleting) = (Some("old-uid".into()), true);
    world.pods.insert(COORDINATOR.into(), old);
    let planned = world.compute_step().status;
    assert_eq!(planned.plan.len(), 3);
    world.job.status = Some(planned);
    let is_first = |action: &Action| match action {
        Action::CreatePod(entry) | Action::CreateService(entry) => entry.name == COORDINATOR,
        _ => false,
    };
    let actions = world.compute_step().actions;
    assert_eq!(actions.len(), 2, "pod and service of the coordinator");
    assert!(actions.iter().all(is_first), "{actions:?}");
    world.pods.remove(COORDINATOR);
    world.settle();
    assert_eq!(world.pods.len(), 4);
}
