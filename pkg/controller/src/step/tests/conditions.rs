//! Tests of the conditions and of the reason of the status.

use di_api::{ConditionType, Reason, Role, find_condition};
use di_plan::AggregatorTemplate;
use jiff::SignedDuration;

use super::*;
use crate::step::{
    ReconcileError,
    tests::pod_states::{Main, RUNNING, Sidecar, State},
};

/// A problem of a running job.
enum Problem {
    /// One of its pods has this state and restart policy.
    Pod(Main, &'static str),
    /// A write is rejected.
    Rejected,
    /// A new learner group has no AggregatorConfig.
    NoConfiguration,
}

use Problem::{NoConfiguration, Pod, Rejected};

fn cause_problem(world: &mut World, name: &str, problem: &Problem, reason: Reason) {
    match problem {
        Pod(main, policy) => {
            world.set_state(name, State::of(*main, Sidecar::None));
            world.change(name, |pod| {
                pod.spec.as_mut().unwrap().restart_policy = Some((*policy).to_owned());
            });
        }
        Rejected => {
            world.last_error = Some(ReconcileError {
                reason,
                message: "the server says why".to_owned(),
                deferred_create: None,
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

fn solve_problem(world: &mut World, name: &str, problem: &Problem) {
    match problem {
        Pod(..) => world.set_state(name, RUNNING),
        Rejected => world.last_error = None,
        NoConfiguration => world.aggregator = fake_cluster::aggregator(),
    }
    world.settle();
    world.run_all();
    world.settle();
}

/// Names and UIDs of plan entries and pods.
fn identities(world: &World) -> Vec<(String, Option<String>)> {
    let planned = world.plan().iter().map(|e| (e.name.clone(), e.uid.clone()));
    let there = world
        .pods
        .values()
        .map(|pod| (pod.name.clone(), Some(pod.uid.clone())));
    planned.chain(there).collect()
}

#[test]
fn reason_is_reported_while_its_problem_lasts() {
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
        (Rejected, Reason::QuotaExceeded, "the server says why"),
        (Rejected, Reason::NameConflict, "the server says why"),
        (Rejected, Reason::Forbidden, "the server says why"),
        (
            NoConfiguration,
            Reason::MissingAggregatorConfig,
            "AggregatorConfig",
        ),
    ];
    for (problem, reason, message) in &cases {
        let collector = running().wanted(Role::Collector).remove(0);
        for name in [COORDINATOR, &collector] {
            let case = format!("{reason} of {name}");
            let mut world = running();
            let before = identities(&world);
            cause_problem(&mut world, name, problem, *reason);
            world.settle();
            assert_eq!(
                world.status().reason.as_deref(),
                Some(reason.as_str()),
                "{case}"
            );
            let ready = find_condition(&world.status().conditions, ConditionType::ReplicasReady);
            let ready = ready.unwrap();
            assert_eq!(
                (ready.status.as_str(), ready.reason.as_str()),
                ("False", reason.as_str())
            );
            assert!(ready.message.contains(message), "{case}: {}", ready.message);
            if let Pod(..) = problem {
                assert!(ready.message.contains(name), "{case}: {}", ready.message);
                // Only the kubelet retries. The reconciler changes nothing.
                world.now += SignedDuration::from_hours(100);
                world.settle();
                assert_eq!(identities(&world), before, "{case}");
            }
            assert_eq!(world.status().restarts, 0, "{case}");

            solve_problem(&mut world, name, problem);
            assert_eq!(world.status().reason, None, "{case}");
            let ready = find_condition(&world.status().conditions, ConditionType::ReplicasReady);
            let ready = ready.unwrap();
            assert_eq!(
                (ready.status.as_str(), ready.reason.as_str()),
                ("True", "AllReady")
            );
            assert_eq!(world.status().phase, Some(Phase::Running), "{case}");
        }
    }
}

fn ready_condition(world: &World) -> (String, String, String) {
    let ready = find_condition(&world.status().conditions, ConditionType::ReplicasReady).unwrap();
    (
        ready.status.clone(),
        ready.reason.clone(),
        ready.message.clone(),
    )
}

#[test]
fn replicas_are_not_ready_before_coordinator_runs() {
    let mut world = World::new(di_fixtures::Job::test());
    world.settle();
    let (status, reason, message) = ready_condition(&world);
    assert_eq!((&*status, &*reason), ("False", "NotReady"));
    assert_eq!(message, format!("{COORDINATOR} is not ready"));
    world.run(COORDINATOR);
    world.settle();
    assert_eq!(ready_condition(&world).0, "True");
}

#[test]
fn finalizers_of_deleted_coordinator_are_reported() {
    let mut world = running();
    world.change(COORDINATOR, |pod| {
        pod.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        pod.metadata.deletion_grace_period_seconds = Some(0);
        pod.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    });
    world.settle();
    let (status, reason, message) = ready_condition(&world);
    assert_eq!((&*status, &*reason), ("False", "FinalizersRemain"));
    assert!(
        message.starts_with(COORDINATOR) && message.ends_with("example.com/hold"),
        "{message}"
    );
}

#[test]
fn crashing_pod_is_reported_during_its_backoff() {
    let collector = running().wanted(Role::Collector).remove(0);
    for first in [COORDINATOR, &collector] {
        let mut world = running();
        world.job.spec.backoff_limit = 9;
        world.exit(first, 2, "Error");
        world.settle();
        world.remove_terminating_pods();
        world.settle();
        assert_eq!(world.status().reason, None, "{first}: replaced");
        world.run_all();
        world.settle();
        let pods = world.pods.values().rev();
        let mut running = pods.filter(|pod| pod.end.is_none());
        let second = running.find(|pod| pod.role == world.pods[first].role);
        let second = second.unwrap().name.clone();
        world.exit(&second, 2, "Error");
        world.settle();
        let next = world.now + SignedDuration::from_secs(10);
        let message = format!("{second}: failed: Error (exit code 2); next try at {next}");
        let reported = |world: &World| {
            let ready = find_condition(&world.status().conditions, ConditionType::ReplicasReady);
            let ready = ready.unwrap();
            (ready.reason.clone(), ready.message.clone())
        };
        assert_eq!(reported(&world), ("CrashLoopBackOff".to_owned(), message));
        world.now = next;
        world.settle();
        world.remove_terminating_pods();
        world.settle();
        assert_eq!(world.status().reason, None, "{second}: replaced");
    }
}

#[test]
fn status_and_conditions_have_observed_generation() {
    let mut world = running();
    assert_eq!(world.status().observed_generation, Some(1));
    world.job.metadata.generation = Some(2);
    world.job.spec.collector.as_mut().unwrap().replicas = 3;
    world.settle();
    assert_eq!(world.status().observed_generation, Some(2));
    let ready = find_condition(&world.status().conditions, ConditionType::ReplicasReady).unwrap();
    assert_eq!(
        (ready.status.as_str(), ready.observed_generation),
        ("False", Some(2))
    );
    // Unchanged conditions get the new generation and keep their transition time.
    let created = find_condition(&world.status().conditions, ConditionType::Created).unwrap();
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
fn error_message_changes_only_for_deferred_create() {
    let pods = Some(("pods", COORDINATOR.to_owned()));
    let services = Some(("services", COORDINATOR.to_owned()));
    for (first, next, message) in [
        (pods, services, "the service is taken"),
        (None, None, "the pod is taken"),
    ] {
        let mut world = running();
        let mut report = |deferred_create, message: &str| {
            world.last_error = Some(ReconcileError {
                reason: Reason::NameConflict,
                message: message.to_owned(),
                deferred_create,
            });
            world.settle();
            let all = &world.status().conditions;
            let ready = find_condition(all, ConditionType::ReplicasReady).unwrap();
            ready.message.clone()
        };
        assert_eq!(report(first, "the pod is taken"), "the pod is taken");
        assert_eq!(report(next, "the service is taken"), message);
    }
}

/// Status and reason of the condition `Admitted`.
fn admission(world: &World) -> (&str, &str) {
    let all = &world.status().conditions;
    let admitted = find_condition(all, ConditionType::Admitted).unwrap();
    (admitted.status.as_str(), admitted.reason.as_str())
}

#[test]
fn forbidden_request_to_kueue_is_the_reason_of_the_wait() {
    let forbidden = ReconcileError {
        reason: Reason::QueueForbidden,
        message: "cannot list priorityclasses".to_owned(),
        deferred_create: None,
    };
    let mut world = queueing::waiting();
    assert_eq!(admission(&world), ("False", "QueueWaiting"));
    world.last_error = Some(forbidden.clone());
    world.settle();
    assert_eq!(world.status().reason.as_deref(), Some("QueueForbidden"));
    assert_eq!(admission(&world), ("False", "QueueForbidden"));
    let all = &world.status().conditions;
    for type_ in [ConditionType::Admitted, ConditionType::ReplicasReady] {
        let condition = find_condition(all, type_).unwrap();
        assert_eq!(condition.message, forbidden.message, "{type_:?}");
    }
    world.last_error = None;
    world.settle();
    assert_eq!(admission(&world), ("False", "QueueWaiting"));

    let mut running = queueing::admitted();
    running.last_error = Some(forbidden.clone());
    running.settle();
    assert_eq!(running.status().reason.as_deref(), Some("QueueForbidden"));
    assert_eq!(admission(&running), ("True", "QueueAdmitted"));

    // The suspension is why the job does not wait in its queue.
    running.last_error = None;
    running.suspend_and_settle();
    running.last_error = Some(forbidden);
    running.settle();
    assert_eq!(admission(&running), ("False", "Suspended"));
}

#[test]
fn most_severe_problem_is_reported_coordinator_first() {
    const COLLECTOR: usize = 0;
    const COORDINATOR_POD: usize = 2;
    const LEARNER: usize = 3;
    for (problems, reason, pod) in [
        (
            vec![(LEARNER, "ImagePullBackOff")],
            "ImagePullBackOff",
            LEARNER,
        ),
        (
            vec![
                (COLLECTOR, "ImagePullBackOff"),
                (COORDINATOR_POD, "ImagePullBackOff"),
            ],
            "ImagePullBackOff",
            COORDINATOR_POD,
        ),
        (
            vec![
                (COLLECTOR, "ErrImagePull"),
                (COORDINATOR_POD, "CrashLoopBackOff"),
            ],
            "CrashLoopBackOff",
            COORDINATOR_POD,
        ),
        (
            vec![
                (COLLECTOR, "CrashLoopBackOff"),
                (COORDINATOR_POD, "RunContainerError"),
            ],
            "RunContainerError",
            COORDINATOR_POD,
        ),
        (
            vec![(COLLECTOR, ""), (LEARNER, "InvalidImageName")],
            "InvalidImageName",
            LEARNER,
        ),
        (
            vec![(COORDINATOR_POD, ""), (LEARNER, "CrashLoopBackOff")],
            "CrashLoopBackOff",
            LEARNER,
        ),
        (
            vec![(COLLECTOR, ""), (COORDINATOR_POD, "")],
            "Unschedulable",
            COORDINATOR_POD,
        ),
    ] {
        let mut world = running();
        let names: Vec<_> = world.pods.keys().cloned().collect();
        assert_eq!(names[COORDINATOR_POD], COORDINATOR, "sorted by name");
        for (pod, reason) in &problems {
            let pod = world.pods.get_mut(&names[*pod]).unwrap();
            match *reason {
                "" => pod.scheduled = Err("no room".into()),
                reason => pod.waiting = Some(Box::new((reason.into(), "details".into()))),
            }
        }
        let status = world.compute_step().status;
        assert_eq!(status.reason.as_deref(), Some(reason), "{problems:?}");
        let ready =
            di_api::find_condition(&status.conditions, di_api::ConditionType::ReplicasReady);
        let message = &ready.unwrap().message;
        assert!(message.starts_with(&names[pod]), "{problems:?}: {message}");
    }
}

#[test]
fn condition_names_first_replica_not_ready() {
    let mut world = running();
    let ready = |world: &World| {
        let all = &world.status().conditions;
        let found = find_condition(all, ConditionType::ReplicasReady).unwrap();
        (found.reason.clone(), found.message.clone())
    };
    let names: Vec<_> = world.plan().iter().map(|e| e.name.clone()).collect();
    for name in &names[..2] {
        world.pods.get_mut(name).unwrap().ready = false;
    }
    world.settle();
    let message = format!("{} is not ready (and 1 more)", names[0]);
    assert_eq!(ready(&world), ("NotReady".to_owned(), message));
    world.suspend_and_settle();
    assert_eq!(ready(&world).0, "Suspended", "no pod can be ready");
}
