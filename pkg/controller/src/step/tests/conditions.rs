//! What is told of a job that something stands in the way of.

use di_api::{ConditionType, Reason, Role, condition};
use di_plan::AggregatorTemplate;
use jiff::SignedDuration;

use super::*;
use crate::step::{
    Trouble,
    tests::states::{Main, RUNNING, Sidecar, State},
};

/// What happens to a job that runs.
enum Disturbance {
    /// One of its pods comes into this state, under this restart policy.
    Pod(Main, &'static str),
    /// A write is refused.
    Refused,
    /// There is no configuration for the aggregator of a new learner.
    NoConfiguration,
}

use Disturbance::{NoConfiguration, Pod, Refused};

fn disturb(world: &mut World, name: &str, disturbance: &Disturbance, reason: Reason) {
    match disturbance {
        Pod(main, policy) => {
            world.bring(name, State::of(*main, Sidecar::None));
            world.change(name, |pod| {
                pod.spec.as_mut().unwrap().restart_policy = Some((*policy).to_owned());
            });
        }
        Refused => {
            world.trouble = Some(Trouble {
                reason,
                message: "the server says why".to_owned(),
                about: None,
            });
        }
        NoConfiguration => {
            world.aggregator = AggregatorTemplate::Missing;
            let groups =
                serde_json::json!([{"name": "logic", "replicas": 1, "resources": {"gpus": "2"}}]);
            let learner = world.job.spec.learner.as_mut().unwrap();
            learner.groups = serde_json::from_value(groups).unwrap();
        }
    }
}

fn mend(world: &mut World, name: &str, disturbance: &Disturbance) {
    match disturbance {
        Pod(..) => world.bring(name, RUNNING),
        Refused => world.trouble = None,
        NoConfiguration => world.aggregator = world::aggregator(),
    }
    world.settle();
    world.run_all();
    world.settle();
}

/// Names and UIDs of what is planned, and of what is there.
fn identities(world: &World) -> Vec<(String, Option<String>)> {
    let planned = world.plan().iter().map(|e| (e.name.clone(), e.uid.clone()));
    let there = world
        .pods
        .values()
        .map(|pod| (pod.name.clone(), Some(pod.uid.clone())));
    planned.chain(there).collect()
}

#[test]
fn every_reason_is_told_while_it_holds_and_no_longer() {
    let cases = [
        (Pod(Main::NoImage, "Never"), Reason::ImagePullBackOff, ""),
        (
            Pod(Main::Unscheduled, "Never"),
            Reason::Unschedulable,
            "0/3 nodes",
        ),
        (
            Pod(Main::CrashLoop, "OnFailure"),
            Reason::CrashLoopBackOff,
            "",
        ),
        (Pod(Main::CrashLoop, "Always"), Reason::CrashLoopBackOff, ""),
        (Refused, Reason::QuotaExceeded, "the server says why"),
        (Refused, Reason::NameConflict, "the server says why"),
        (Refused, Reason::Forbidden, "the server says why"),
        (
            NoConfiguration,
            Reason::MissingAggregatorConfig,
            "AggregatorConfig",
        ),
    ];
    for (disturbance, reason, message) in &cases {
        let collector = running().wanted(Role::Collector).remove(0);
        for name in [COORDINATOR, &collector] {
            let what = format!("{reason} of {name}");
            let mut world = running();
            let before = identities(&world);
            disturb(&mut world, name, disturbance, *reason);
            world.settle();
            assert_eq!(
                world.status().reason.as_deref(),
                Some(reason.as_str()),
                "{what}"
            );
            let ready = condition(&world.status().conditions, ConditionType::ReplicasReady);
            let ready = ready.unwrap();
            assert_eq!(
                (ready.status.as_str(), ready.reason.as_str()),
                ("False", reason.as_str())
            );
            assert!(ready.message.contains(message), "{what}: {}", ready.message);
            if let Pod(..) = disturbance {
                assert!(ready.message.contains(name), "{what}: {}", ready.message);
                // Its kubelet goes on trying, however long it takes, and nobody else has a part in it.
                world.now += SignedDuration::from_hours(100);
                world.settle();
                assert_eq!(identities(&world), before, "{what}");
            }
            assert_eq!(world.status().restarts, 0, "{what}");

            mend(&mut world, name, disturbance);
            assert_eq!(world.status().reason, None, "{what}");
            let ready = condition(&world.status().conditions, ConditionType::ReplicasReady);
            let ready = ready.unwrap();
            assert_eq!(
                (ready.status.as_str(), ready.reason.as_str()),
                ("True", "AllReady")
            );
            assert_eq!(world.status().phase, Some(Phase::Running), "{what}");
        }
    }
}

#[test]
fn who_fails_again_and_again_is_told_of_while_the_next_try_is_waited_for() {
    let collector = running().wanted(Role::Collector).remove(0);
    for first in [COORDINATOR, &collector] {
        let mut world = running();
        world.job.spec.backoff_limit = 9;
        world.exit(first, 2, "Error");
        world.settle();
        world.kubelet_ends_deleted();
        world.settle();
        assert_eq!(world.status().reason, None, "{first}: another is there");
        world.run_all();
        world.settle();
        let there = world.pods.values().rev();
        let mut there = there.filter(|pod| pod.end.is_none());
        let second = there.find(|pod| pod.role == world.pods[first].role);
        let second = second.unwrap().name.clone();
        world.exit(&second, 2, "Error");
        world.settle();
        let next = world.now + SignedDuration::from_secs(10);
        let message = format!("{second}: failed: Error (exit code 2); the next try is at {next}");
        let told = |world: &World| {
            let ready = condition(&world.status().conditions, ConditionType::ReplicasReady);
            let ready = ready.unwrap();
            (ready.reason.clone(), ready.message.clone())
        };
        assert_eq!(told(&world), ("CrashLoopBackOff".to_owned(), message));
        world.now = next;
        world.settle();
        world.kubelet_ends_deleted();
        world.settle();
        assert_eq!(world.status().reason, None, "{second}: another is there");
    }
}

#[test]
fn the_status_tells_which_generation_of_the_spec_it_is_of() {
    let mut world = running();
    assert_eq!(world.status().observed_generation, Some(1));
    world.job.metadata.generation = Some(2);
    world.job.spec.collector.as_mut().unwrap().replicas = 3;
    world.settle();
    assert_eq!(world.status().observed_generation, Some(2));
    let ready = condition(&world.status().conditions, ConditionType::ReplicasReady).unwrap();
    assert_eq!(
        (ready.status.as_str(), ready.observed_generation),
        ("False", Some(2))
    );
    // What the change leaves as it is holds for the new one too, and has held as long as before.
    let created = condition(&world.status().conditions, ConditionType::Created).unwrap();
    assert_eq!(created.observed_generation, Some(2));

    world.exit(COORDINATOR, 0, "Completed");
    world.settle();
    world.now += SignedDuration::from_secs(60);
    world.job.metadata.generation = Some(3);
    world.job.spec.ttl_seconds_after_finished = Some(600);
    world.settle();
    assert_eq!(world.status().observed_generation, Some(3));
    for condition in &world.status().conditions {
        assert_eq!(condition.observed_generation, Some(3), "{condition:?}");
        assert!(
            condition.last_transition_time.0 < world.now,
            "{condition:?}"
        );
    }
}

#[test]
fn what_is_put_off_is_told_as_it_is_and_what_is_not_as_it_was() {
    let pods = Some(("pods", COORDINATOR.to_owned()));
    let services = Some(("services", COORDINATOR.to_owned()));
    for (about, next, message) in [
        (pods, services, "the service is taken"),
        (None, None, "the pod is taken"),
    ] {
        let mut world = running();
        let mut tell = |about, message: &str| {
            world.trouble = Some(Trouble {
                reason: Reason::NameConflict,
                message: message.to_owned(),
                about,
            });
            world.settle();
            let all = &world.status().conditions;
            let ready = condition(all, ConditionType::ReplicasReady).unwrap();
            ready.message.clone()
        };
        assert_eq!(tell(about, "the pod is taken"), "the pod is taken");
        assert_eq!(tell(next, "the service is taken"), message);
    }
}

#[test]
fn the_worst_is_told_and_of_several_alike_the_coordinators() {
    const COLLECTOR: usize = 0;
    const COORDINATES: usize = 2;
    const LEARNER: usize = 3;
    for (stuck, told, by) in [
        (
            vec![(LEARNER, "ImagePullBackOff")],
            "ImagePullBackOff",
            LEARNER,
        ),
        (
            vec![
                (COLLECTOR, "ImagePullBackOff"),
                (COORDINATES, "ImagePullBackOff"),
            ],
            "ImagePullBackOff",
            COORDINATES,
        ),
        (
            vec![
                (COLLECTOR, "ErrImagePull"),
                (COORDINATES, "CrashLoopBackOff"),
            ],
            "CrashLoopBackOff",
            COORDINATES,
        ),
        (
            vec![
                (COLLECTOR, "CrashLoopBackOff"),
                (COORDINATES, "RunContainerError"),
            ],
            "RunContainerError",
            COORDINATES,
        ),
        (
            vec![(COLLECTOR, ""), (LEARNER, "InvalidImageName")],
            "InvalidImageName",
            LEARNER,
        ),
        (
            vec![(COORDINATES, ""), (LEARNER, "CrashLoopBackOff")],
            "CrashLoopBackOff",
            LEARNER,
        ),
        (
            vec![(COLLECTOR, ""), (COORDINATES, "")],
            "Unschedulable",
            COORDINATES,
        ),
    ] {
        let mut world = running();
        let names: Vec<_> = world.pods.keys().cloned().collect();
        assert_eq!(names[COORDINATES], COORDINATOR, "as they are sorted");
        for (pod, reason) in &stuck {
            let pod = world.pods.get_mut(&names[*pod]).unwrap();
            match *reason {
                "" => pod.scheduled = Err("no room".into()),
                reason => pod.waiting = Some(Box::new((reason.into(), "so it is".into()))),
            }
        }
        let status = world.look().status;
        assert_eq!(status.reason.as_deref(), Some(told), "{stuck:?}");
        let ready = di_api::condition(&status.conditions, di_api::ConditionType::ReplicasReady);
        let message = &ready.unwrap().message;
        assert!(message.starts_with(&names[by]), "{stuck:?}: {message}");
    }
}

#[test]
fn a_replica_that_is_not_ready_is_named() {
    let mut world = running();
    let ready = |world: &World| {
        let all = &world.status().conditions;
        let found = condition(all, ConditionType::ReplicasReady).unwrap();
        (found.reason.clone(), found.message.clone())
    };
    let names: Vec<_> = world.plan().iter().map(|e| e.name.clone()).collect();
    for name in &names[..2] {
        world.pods.get_mut(name).unwrap().ready = false;
    }
    world.settle();
    let told = format!("{} is not ready (and 1 more)", names[0]);
    assert_eq!(ready(&world), ("NotReady".to_owned(), told));
    world.hold();
    assert_eq!(ready(&world).0, "Suspended", "nobody is there to be ready");
}
