//! Gangs while the groups of the scheduler cannot be used.

use di_api::Role;
use di_cache::{GroupApi, OptionalApi};

use super::{gang_job, is_placed, min_member, placed, readiness, run, wait, waiting};
use crate::step::tests::{fake_cluster::World, fake_gang_scheduler::coscheduling};

/// The states in which a group can be neither seen nor changed, and the reasons in the status.
const UNUSABLE: [(GroupApi, &str); 2] = [
    (OptionalApi::NotServed, "NoGangScheduler"),
    (OptionalApi::Forbidden, "GangForbidden"),
];

#[test]
fn job_without_gang_scheduler_runs_and_warns() {
    for scheduler in [None, Some(coscheduling())] {
        let mut world = World::new(gang_job());
        world.gang.scheduler = scheduler;
        world.gang.api = OptionalApi::NotServed;
        let events = world.compute_step().events;
        let warns = |event: &crate::EventRecord| event.reason.as_str() == "NoGangScheduler";
        assert_eq!(events.iter().filter(|event| warns(event)).count(), 1);
        world.settle();
        assert_eq!(world.pods.len(), 4);
        assert!(world.status().scheduling.is_none());
        world.run_all();
        world.settle();
        let (status, reason, _) = readiness(&world);
        assert_eq!((status, reason), ("True", "NoGangScheduler"));
        assert_eq!(world.status().reason.as_deref(), Some("NoGangScheduler"));
        assert!(world.compute_step().events.is_empty());

        // A group would lack the pods that run already.
        world.serve_gangs();
        world.settle();
        assert!(world.group().is_none() && world.status().scheduling.is_none());
    }
}

#[test]
fn waiting_gang_is_kept_while_its_group_is_unusable() {
    for (api, reason) in UNUSABLE {
        let mut world = waiting();
        world.gang.api = api;
        world.settle();
        assert!(world.status().scheduling.is_some() && !is_placed(&world));
        assert_eq!(world.pods.len(), 3, "{api:?}");
        let (status, shown, _) = readiness(&world);
        assert_eq!((status, shown), ("False", reason));
        world.serve_gangs();
        run(&mut world);
        assert_eq!((world.pods.len(), readiness(&world).0), (4, "True"));
    }
}

#[test]
fn gang_of_lost_status_waits_for_its_api() {
    let mut world = waiting();
    world.gang.groups.clear();
    (world.gang.api, world.job.status) = (OptionalApi::NotServed, None);
    world.settle();
    assert_eq!(world.pods.len(), 3, "{:?}", world.pod_names());
    world.serve_gangs();
    run(&mut world);
    assert!(is_placed(&world) && world.pods.values().all(|pod| pod.in_gang));
    assert_eq!(world.pods.len(), 4);
}

#[test]
fn placed_gang_is_kept_while_its_group_is_unusable() {
    for (api, reason) in UNUSABLE {
        let mut world = placed();
        world.gang.api = api;
        world.settle();
        assert!(world.compute_step().events.is_empty(), "{api:?}");
        let (status, shown, _) = readiness(&world);
        assert_eq!((status, shown), ("True", reason));
        assert_eq!(world.status().reason.as_deref(), Some(reason));

        let lost = world.wanted(Role::Collector).remove(0);
        world.pods.remove(&lost);
        world.settle();
        assert!(!world.pods.contains_key(&lost) && is_placed(&world));
        assert_eq!(world.pods.len(), 4, "{api:?}");
        assert!(world.pods.values().all(|pod| pod.in_gang), "{api:?}");
        world.serve_gangs();
        run(&mut world);
        assert_eq!(readiness(&world).1, "AllReady");
        // Of the floor two pods had nodes while the third was replaced.
        assert_eq!(min_member(&world), Some(2));

        world.gang.api = api;
        world.suspend_and_settle();
        assert!(world.status().scheduling.is_none());
        world.job.spec.suspend = false;
        world.settle();
        let can_wait = api == OptionalApi::Forbidden;
        assert_eq!(world.pods.len(), if can_wait { 0 } else { 4 });
        assert!(world.pods.values().all(|pod| !pod.in_gang), "{api:?}");
    }
}

#[test]
fn gang_without_pods_ends_when_its_api_is_removed() {
    let mut world = World::new(gang_job());
    world.serve_gangs();
    world.job.status = Some(world.compute_step().status);
    assert!(world.status().scheduling.is_some());
    world.gang.api = OptionalApi::NotServed;
    world.settle();
    assert!(world.status().scheduling.is_none());
    assert_eq!(world.pods.len(), 4);
    assert!(world.pods.values().all(|pod| !pod.in_gang));
}

#[test]
fn unlisted_groups_are_a_reason_to_wait() {
    let mut world = World::new(gang_job());
    world.serve_gangs();
    world.gang.api = OptionalApi::Unknown;
    world.settle();
    let message = "the PodGroups of the gang scheduler are not listed yet";
    assert_eq!(readiness(&world), ("False", "GangWaiting", message));

    // After a restart of the orchestrator.
    let mut world = waiting();
    let writes = world.status_writes;
    world.gang.api = OptionalApi::Unknown;
    world.gang.groups.clear();
    world.settle();
    assert_eq!(readiness(&world).2, "gang: 0 of 3 placed");
    assert_eq!(world.status_writes, writes);
}

#[test]
fn job_waits_without_permissions_for_groups() {
    for api in [OptionalApi::Forbidden, OptionalApi::Unknown] {
        let mut world = World::new(gang_job());
        world.serve_gangs();
        world.gang.api = api;
        world.settle();
        assert!(world.pods.is_empty(), "{api:?}");
        if api == OptionalApi::Forbidden {
            let (_, reason, message) = readiness(&world);
            assert_eq!(reason, "GangForbidden");
            let remedy = "run: kubectl di install --gang-scheduler=coscheduling";
            assert!(message.ends_with(remedy), "{message}");
        }

        let mut world = placed();
        world.gang.api = api;
        let name = world.wanted(Role::Collector).remove(0);
        world.pods.remove(&name);
        world.settle();
        wait(&mut world);
        world.settle();
        assert_eq!(world.pods.len(), 4, "{api:?}");
    }
}

#[test]
fn group_that_could_not_be_deleted_is_deleted_later() {
    let mut world = placed();
    world.gang.api = OptionalApi::NotServed;
    world.suspend_and_settle();
    world.job.spec.suspend = false;
    world.settle();
    assert!(world.group().is_some(), "the API was not served");
    world.serve_gangs();
    world.settle();
    assert!(world.group().is_none() && world.status().scheduling.is_none());
    assert_eq!(world.pods.len(), 4, "all run without a gang");
}
