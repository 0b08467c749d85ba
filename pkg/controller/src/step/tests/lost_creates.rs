//! Pods whose create got no response: they exist, and the cache does not show them yet.

use di_api::Role;
use di_cache::OptionalApi;
use di_plan::PodView;

use super::{
    fake_cluster::World,
    fake_kueue::BASE,
    gang::gang_job,
    queueing::{admitted, run, set_collectors},
};
use crate::step::{Action, Step};

/// Removes the pod of a replica from the cache and from the plan.
fn hide_pod(world: &mut World, name: &str) -> PodView {
    let plan = &mut world.job.status.as_mut().unwrap().plan;
    let mut plan = plan.iter_mut();
    plan.find(|entry| entry.name == name).unwrap().uid = None;
    world.pods.remove(name).unwrap()
}

/// Starts a job until the first pod of a role is created, and hides it.
fn hide_first_pod(world: &mut World, role: Role) -> PodView {
    let is_pod = |action: &Action| matches!(action, Action::CreatePod(_));
    let is_of_role =
        |action: &Action| matches!(action, Action::CreatePod(entry) if entry.role == role);
    for _ in 0..3 {
        let step = world.compute_step();
        world.job.status = Some(step.status);
        let (pods, others): (Vec<_>, Vec<_>) = step.actions.into_iter().partition(is_pod);
        for action in others {
            world.apply(action);
        }
        if let Some(create) = pods.into_iter().find(is_of_role) {
            world.apply(create);
            let (_, pod) = world.pods.pop_first().unwrap();
            return pod;
        }
    }
    panic!("no pod of {role:?} is created");
}

/// Reads the pods that a step needs from the API server, of which only this one exists.
fn read_live(world: &mut World, pod: PodView) -> Step {
    let needed = world.compute_step().needs_live_read;
    assert!(needed.contains(&pod.name), "{needed:?}");
    let exists = |name: String| (name.clone(), name == pod.name);
    world.live_reads = needed.into_iter().map(exists).collect();
    world.pods.insert(pod.name.clone(), pod);
    let step = world.compute_step();
    assert!(step.needs_live_read.is_empty(), "{step:?}");
    step
}

#[test]
fn removed_replica_keeps_its_quota_until_its_pod_is_gone() {
    // The third collector has quota of its own.
    for count in [2, 3] {
        let mut world = admitted();
        set_collectors(&mut world, count);
        world.settle();
        let all = world.workload_names().into_iter();
        let own: Vec<String> = all
            .filter(|name| *name != BASE)
            .map(str::to_owned)
            .collect();
        for name in &own {
            world.admit(name);
        }
        run(&mut world);
        let name = world.wanted(Role::Collector).pop().unwrap();
        let pod = hide_pod(&mut world, &name);
        assert!(world.services.contains_key(&name));
        set_collectors(&mut world, 0);
        let step = read_live(&mut world, pod);
        let returns_quota = step.actions.iter().any(Action::is_for_workload);
        assert!(!returns_quota, "{count}: {:?}", step.actions);
        world.settle();
        assert!(world.pods[&name].deleting, "{count}");
    }
}

#[test]
fn hidden_pod_decides_whether_the_job_has_a_gang() {
    let served = OptionalApi::Served(());
    for (before, after, role, has_gang) in [
        // A pod of the gang waits for the others.
        (served, OptionalApi::NotServed, Role::Collector, true),
        // The group of a new gang would lack a pod.
        (OptionalApi::NotServed, served, Role::Coordinator, false),
    ] {
        let mut world = World::new(gang_job());
        world.serve_gangs();
        world.gang.api = before;
        let pod = hide_first_pod(&mut world, role);
        assert_eq!(pod.in_gang, has_gang);
        world.gang.api = after;
        let step = read_live(&mut world, pod);
        assert_eq!(step.status.scheduling.is_some(), has_gang, "{role:?}");
    }
}
