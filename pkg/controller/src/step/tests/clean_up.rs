//! Tests of the clean-up: for each end of a job and each state of its pods, exactly the pods of its
//! `cleanPodPolicy` are kept.

use std::collections::{BTreeMap, BTreeSet};

use di_api::{
    CleanPodPolicy, ConditionType, DIJobStatus, Phase, Role, find_condition, is_condition_true,
};
use di_fixtures::Job;
use di_plan::PodView;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use proptest::prelude::*;
use serde_json::json;

use super::{
    fake_cluster::{COORDINATOR, World},
    pod_states::{Disruption, Main, RUNNING, Sidecar, State},
};

const POLICIES: [CleanPodPolicy; 3] = [
    CleanPodPolicy::None,
    CleanPodPolicy::Running,
    CleanPodPolicy::All,
];
const LIMIT: i64 = 60;
const TTL: i32 = 30;

/// A running job with this number of collectors, learners, and learner groups. Each group has an
/// aggregator and two ddp learners.
fn running(count: usize) -> World {
    let groups = json!([{"name": "big", "replicas": count, "resources": {"gpus": "6"}}]);
    let job = Job::test().collectors(count).learners(count);
    let mut world = World::new(job.spec(json!({"learner": {"groups": groups}})));
    world.settle();
    let names: Vec<_> = world.pods.keys().cloned().collect();
    assert_eq!(names.len(), 1 + 5 * count);
    for name in &names {
        world.set_state(name, RUNNING);
    }
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Running));
    world
}

/// How a job ends, or is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Succeeds,
    SucceedsWithSidecar,
    SucceedsAfterEviction,
    SucceedsAfterNodeLoss,
    Fails,
    IsOomKilledWithSidecar,
    ExceedsBackoffLimit,
    ExceedsDeadline,
    ExpiresAfterSuccess,
    ExpiresAfterFailure,
    ExpiresAfterDeadline,
    IsSuspended,
    IsDeleted,
}

impl Ending {
    const ALL: [Self; 13] = [
        Self::Succeeds,
        Self::SucceedsWithSidecar,
        Self::SucceedsAfterEviction,
        Self::SucceedsAfterNodeLoss,
        Self::Fails,
        Self::IsOomKilledWithSidecar,
        Self::ExceedsBackoffLimit,
        Self::ExceedsDeadline,
        Self::ExpiresAfterSuccess,
        Self::ExpiresAfterFailure,
        Self::ExpiresAfterDeadline,
        Self::IsSuspended,
        Self::IsDeleted,
    ];

    /// Returns true if the job is deleted after its TTL.
    fn expires(self) -> bool {
        matches!(
            self,
            Self::ExpiresAfterSuccess | Self::ExpiresAfterFailure | Self::ExpiresAfterDeadline
        )
    }

    /// Changes the running job before its end.
    fn prepare(self, world: &mut World) {
        match self {
            Self::SucceedsAfterEviction => {
                lose_coordinator(world, RUNNING.disrupted(Disruption::Evicted));
            }
            Self::SucceedsAfterNodeLoss => {
                let lost = RUNNING.disrupted(Disruption::NodeLost);
                world.set_state(COORDINATOR, lost);
                world.settle();
                assert_eq!(world.status().phase, Some(Phase::Unknown));
                lose_coordinator(world, lost.deleting());
            }
            Self::ExceedsBackoffLimit => {
                world.job.spec.backoff_limit = 2;
                for _ in 0..2 {
                    lose_coordinator(world, State::of(Main::Exited(1), Sidecar::None));
                }
            }
            Self::ExceedsDeadline | Self::ExpiresAfterDeadline => {
                world.job.spec.active_deadline_seconds = Some(LIMIT);
            }
            _ => {}
        }
        world.job.spec.ttl_seconds_after_finished = self.expires().then_some(TTL);
    }

    /// Ends the job.
    fn end_job(self, world: &mut World) {
        let mut coordinator =
            |main, sidecar| world.set_state(COORDINATOR, State::of(main, sidecar));
        match self {
            Self::Succeeds
            | Self::SucceedsAfterEviction
            | Self::SucceedsAfterNodeLoss
            | Self::ExpiresAfterSuccess => coordinator(Main::Exited(0), Sidecar::None),
            Self::SucceedsWithSidecar => coordinator(Main::Exited(0), Sidecar::Running),
            Self::Fails | Self::ExceedsBackoffLimit | Self::ExpiresAfterFailure => {
                coordinator(Main::Exited(3), Sidecar::None);
            }
            Self::IsOomKilledWithSidecar => coordinator(Main::OomKilled, Sidecar::Running),
            Self::ExceedsDeadline | Self::ExpiresAfterDeadline => {
                world.now += SignedDuration::from_secs(LIMIT);
            }
            Self::IsSuspended => world.job.spec.suspend = true,
            Self::IsDeleted => {
                let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now);
                world.job.metadata.deletion_timestamp = Some(now);
            }
        }
    }

    /// Returns phase, reason and counted restarts.
    fn expected_status(self) -> (Phase, Option<&'static str>, i32) {
        match self {
            Self::Succeeds
            | Self::SucceedsWithSidecar
            | Self::SucceedsAfterEviction
            | Self::SucceedsAfterNodeLoss
            | Self::ExpiresAfterSuccess => (Phase::Succeeded, Some("CoordinatorSucceeded"), 0),
            Self::Fails | Self::IsOomKilledWithSidecar | Self::ExpiresAfterFailure => {
                (Phase::Failed, Some("CoordinatorFailed"), 0)
            }
            Self::ExceedsBackoffLimit => (Phase::Failed, Some("CoordinatorFailed"), 2),
            Self::ExceedsDeadline | Self::ExpiresAfterDeadline => {
                (Phase::Failed, Some("DeadlineExceeded"), 0)
            }
            Self::IsSuspended => (Phase::Suspended, None, 0),
            Self::IsDeleted => (Phase::Running, None, 0),
        }
    }
}

/// Disrupts the coordinator and waits for the next pod.
fn lose_coordinator(world: &mut World, state: State) {
    let before = world.pods[COORDINATOR].uid.clone();
    world.set_state(COORDINATOR, state);
    world.settle();
    if !world.pods[COORDINATOR].deleting {
        // A repeated loss has a backoff.
        let delay = world.compute_step().requeue_after.unwrap();
        world.now += delay;
        world.settle();
    }
    assert!(world.pods[COORDINATOR].deleting);
    world.remove_terminating_pods();
    world.settle();
    assert_ne!(world.pods[COORDINATOR].uid, before);
    world.set_state(COORDINATOR, RUNNING);
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Running));
}

/// The expected rule: whether a pod is kept at the end.
fn is_kept(policy: CleanPodPolicy, pod: &Pod) -> bool {
    let is_coordinator = pod.labels()["replica-type"] == "coordinator";
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    let has_no_node = conditions.any(|c| c.type_ == "PodScheduled" && c.status == "False");
    let could_use_the_cluster = !matches!(phase, Some("Succeeded" | "Failed"));
    match policy {
        CleanPodPolicy::None => true,
        CleanPodPolicy::Running => is_coordinator && !has_no_node || !could_use_the_cluster,
        CleanPodPolicy::All => false,
    }
}

/// Names of the pods that are expected to be kept.
fn kept_pods(world: &World, ending: Ending, policy: CleanPodPolicy) -> BTreeSet<String> {
    let is_left = |name: &String| match ending {
        Ending::IsSuspended => false,
        Ending::IsDeleted => true,
        _ => is_kept(policy, world.object(name)),
    };
    let pods = world.pods.values().filter(|pod| !pod.deleting);
    pods.map(|pod| pod.name.clone()).filter(is_left).collect()
}

fn names<V>(all: &BTreeMap<String, V>) -> BTreeSet<String> {
    all.keys().cloned().collect()
}

/// Reconciles, and compares the remaining pods.
fn check_kept_pods(world: &mut World, kept: &BTreeSet<String>, case: &str) {
    let services = names(&world.services);
    world.settle();
    let pods = names(&world.pods);
    let is_terminating = |name: &String| world.pods.get(name).is_some_and(|pod| pod.deleting);
    for name in &pods {
        assert_eq!(is_terminating(name), !kept.contains(name), "{case}: {name}");
    }
    // Terminating pods keep their services.
    let expected: BTreeSet<_> = services.into_iter().filter(is_terminating).collect();
    assert_eq!(names(&world.services), expected, "{case}");
    world.remove_terminating_pods();
    world.settle();
    assert_eq!(names(&world.pods), *kept, "{case}");
    assert!(world.services.is_empty(), "{case}: {:?}", world.services);
}

/// Checks that kept pods are stopped, except by policy `None`.
fn check_kept_pods_are_stopped(world: &World, ending: Ending, policy: CleanPodPolicy, case: &str) {
    let ended = !matches!(ending, Ending::IsSuspended | Ending::IsDeleted);
    // The sidecars of ended replicas are stopped at any time.
    let is_checked = |pod: &&PodView| pod.name == COORDINATOR || pod.end.is_none();
    for pod in world.pods.values().filter(is_checked) {
        let is_running = pod.is_active() && pod.end.is_none();
        let expected = ended && policy == CleanPodPolicy::Running && is_running;
        assert_eq!(pod.deadline_requested, expected, "{case}: {}", pod.name);
    }
}

fn conditions(status: &DIJobStatus) -> Vec<(&str, &str)> {
    let all = [
        ConditionType::Succeeded,
        ConditionType::Failed,
        ConditionType::Running,
    ];
    all.into_iter()
        .filter(|type_| is_condition_true(&status.conditions, *type_))
        .map(|type_| {
            let condition = find_condition(&status.conditions, type_).unwrap();
            (type_.as_str(), condition.reason.as_str())
        })
        .collect()
}

/// Checks that the status reports only the end, and counts the remaining pods.
fn check_status(world: &World, phase: Phase, reason: Option<&str>, restarts: i32, case: &str) {
    let status = world.status();
    let actual = (status.phase, status.reason.as_deref(), status.restarts);
    assert_eq!(actual, (Some(phase), reason, restarts), "{case}");
    if phase.is_terminal() {
        let reason = reason.unwrap();
        let expected = [(phase.as_str(), reason)];
        assert_eq!(conditions(status), expected, "{case}");
        assert!(status.plan.is_empty(), "{case}: {:?}", status.plan);
        assert!(status.start_time <= status.completion_time, "{case}");
        assert!(status.completion_time.is_some(), "{case}");
    }
    let counted: i32 = status
        .replica_status
        .values()
        .map(|n| n.active + n.pending + n.succeeded + n.failed)
        .sum();
    assert_eq!(
        usize::try_from(counted).unwrap(),
        world.pods.len(),
        "{case}"
    );
}

/// Checks that the end is final, even if the kept pods disappear.
fn check_end_is_final(world: &mut World, case: &str) {
    let final_fields = |status: &DIJobStatus| {
        let ends = [ConditionType::Succeeded, ConditionType::Failed];
        let ends = ends.map(|type_| find_condition(&status.conditions, type_).cloned());
        (status.phase, status.completion_time.clone(), ends)
    };
    let before = final_fields(world.status());
    let written = world.status_writes;
    world.settle();
    assert_eq!(world.status_writes, written, "{case}: written again");
    world.pods.clear();
    world.now += SignedDuration::from_hours(10_000);
    world.settle();
    assert!(world.pods.is_empty() && world.services.is_empty(), "{case}");
    assert_eq!(final_fields(world.status()), before, "{case}");
}

/// Ends the job, and checks the remaining pods and the status.
fn check_ending(mut world: World, ending: Ending, policy: CleanPodPolicy, case: &str) {
    world.job.spec.clean_pod_policy = policy;
    ending.end_job(&mut world);
    let kept = kept_pods(&world, ending, policy);
    let (phase, reason, restarts) = ending.expected_status();
    match ending {
        Ending::IsDeleted => {
            let (pods, services) = (names(&world.pods), names(&world.services));
            world.settle();
            assert_eq!(names(&world.pods), pods, "{case}");
            assert_eq!(names(&world.services), services, "{case}");
            assert!(
                world
                    .pods
                    .values()
                    .all(|pod| pod.deleting != kept.contains(&pod.name))
            );
        }
        Ending::IsSuspended => {
            let planned = wanted(&world);
            check_kept_pods(&mut world, &kept, case);
            check_status(&world, phase, reason, restarts, case);
            check_resumed(&mut world, &planned, case);
        }
        _ => {
            check_kept_pods(&mut world, &kept, case);
            check_kept_pods_are_stopped(&world, ending, policy, case);
            check_status(&world, phase, reason, restarts, case);
            assert!(!world.job_deleted, "{case}");
            check_end_is_final(&mut world, case);
            assert_eq!(world.job_deleted, ending.expires(), "{case}");
        }
    }
}

fn wanted(world: &World) -> BTreeSet<String> {
    let wanted = world.plan().iter().filter(|entry| entry.is_wanted());
    wanted.map(|entry| entry.name.clone()).collect()
}

/// Resumes a suspended job, and checks that it has its planned replicas except the completed ones.
fn check_resumed(world: &mut World, planned: &BTreeSet<String>, case: &str) {
    assert_eq!(wanted(world), *planned, "{case}");
    world.job.spec.suspend = false;
    // Replacements may have a backoff.
    world.now += SignedDuration::from_secs(600);
    world.settle();
    let plan = world.plan().iter();
    let undone = plan.filter(|entry| entry.is_wanted() && !entry.done);
    let mut expected: BTreeSet<_> = undone.map(|entry| entry.name.clone()).collect();
    assert!(expected.is_subset(planned));
    expected.insert(COORDINATOR.to_owned());
    assert_eq!(names(&world.pods), expected, "{case}");
    assert_eq!(names(&world.services), expected, "{case}");
    assert_eq!(world.status().phase, Some(Phase::Created), "{case}");
}

/// Sets the states of the replicas: each role cycles through all states.
fn set_states(world: &mut World, states: &[State]) {
    let mut of_role: BTreeMap<Role, usize> = BTreeMap::new();
    for name in names(&world.pods) {
        let role = world.pods[&name].role.unwrap();
        if role == Role::Coordinator {
            continue;
        }
        // The members of a group have different states.
        let next = of_role.entry(role).or_insert(role as usize);
        world.set_state(&name, states[*next % states.len()]);
        *next += 1;
    }
}

#[test]
fn pod_view_matches_each_pod_state() {
    let world = running(1);
    for state in State::all() {
        for name in names(&world.pods) {
            let mut world = world.clone();
            world.set_state(&name, state);
            let pod = &world.pods[&name];
            assert_eq!(pod.is_active(), !state.is_over(), "{state:?}");
            let succeeded = pod.end.as_ref().map(|end| end.has_succeeded());
            assert_eq!(succeeded, state.has_succeeded(), "{state:?}");
            assert_eq!(pod.disrupted, state.is_disrupted(), "{state:?}");
            assert_eq!(pod.deleting, state.deleting, "{state:?}");
            let stage = format!("{:?}", pod.stage()).to_lowercase();
            assert_eq!(stage, state.stage_name(), "{state:?}");
        }
    }
}

/// Each ending x policy x pod state, before and after the reconciler reacts to the states.
#[test]
fn f9_clean_up_keeps_pods_by_policy_in_each_pod_state() {
    // In parts, because the time grows with the square of the number of pods.
    for states in State::all().chunks(35) {
        let world = running(states.len());
        for ending in Ending::ALL {
            let mut world = world.clone();
            ending.prepare(&mut world);
            set_states(&mut world, states);
            for policy in POLICIES {
                let case = format!("{ending:?}, {policy:?}, before reaction");
                check_ending(world.clone(), ending, policy, &case);
            }
            world.settle();
            for policy in POLICIES {
                let case = format!("{ending:?}, {policy:?}, after reaction");
                check_ending(world.clone(), ending, policy, &case);
            }
        }
    }
}

/// A condition that would end or suspend the job if its coordinator had not ended.
#[derive(Clone, Copy, Debug)]
enum Request {
    /// No request.
    None,
    /// The deadline is over.
    Late,
    /// A user suspends it.
    Suspend,
}

/// Each state of the coordinator x policy x backoff limit x request.
#[test]
fn ended_coordinator_ends_job_despite_other_requests() {
    let world = running(1);
    for state in State::all() {
        for (request, limit, policy) in [Request::None, Request::Late, Request::Suspend]
            .into_iter()
            .flat_map(|request| [(request, 0), (request, 1)])
            .flat_map(|(request, limit)| POLICIES.map(|policy| (request, limit, policy)))
        {
            let mut world = world.clone();
            world.job.spec.backoff_limit = limit;
            world.job.spec.clean_pod_policy = policy;
            world.set_state(COORDINATOR, state);
            match request {
                Request::None => {}
                Request::Late => {
                    world.job.spec.active_deadline_seconds = Some(LIMIT);
                    world.now += SignedDuration::from_secs(LIMIT);
                }
                Request::Suspend => world.job.spec.suspend = true,
            }
            check_decision(world, state, request, policy);
        }
    }
}

fn check_decision(mut world: World, state: State, request: Request, policy: CleanPodPolicy) {
    let limit = world.job.spec.backoff_limit;
    let case = format!("{state:?}, {request:?}, {limit}, {policy:?}");
    let counts = state.has_succeeded() == Some(false) && !state.deleting && !state.is_disrupted();
    let ended = match (state.has_succeeded(), request) {
        (Some(true), _) => Some((Phase::Succeeded, "CoordinatorSucceeded")),
        _ if counts && limit == 0 => Some((Phase::Failed, "CoordinatorFailed")),
        (_, Request::Late) => Some((Phase::Failed, "DeadlineExceeded")),
        _ => None,
    };
    if let Some((phase, reason)) = ended {
        let kept = kept_pods(&world, Ending::Succeeds, policy);
        check_kept_pods(&mut world, &kept, &case);
        check_status(&world, phase, Some(reason), 0, &case);
        check_end_is_final(&mut world, &case);
        return;
    }
    let planned = wanted(&world);
    let before = world.pods[COORDINATOR].uid.clone();
    world.settle();
    if matches!(request, Request::Suspend) {
        check_kept_pods(&mut world, &BTreeSet::new(), &case);
        check_status(&world, Phase::Suspended, None, 0, &case);
        check_resumed(&mut world, &planned, &case);
        return;
    }
    let restarts = i32::from(counts);
    assert_eq!(world.status().restarts, restarts, "{case}");
    let is_deleted = state.deleting || state.has_succeeded().is_some();
    assert_eq!(world.pods[COORDINATOR].deleting, is_deleted, "{case}");
    world.remove_terminating_pods();
    world.settle();
    assert_eq!(world.pods[COORDINATOR].uid != before, is_deleted, "{case}");
    assert_eq!(
        conditions(world.status())
            .iter()
            .filter(|c| c.0 != "Running")
            .count(),
        0
    );
    assert_eq!(wanted(&world), planned, "{case}");
    assert_eq!(world.pods.len(), planned.len() + 1, "{case}");
}

fn any_state() -> impl Strategy<Value = State> {
    proptest::sample::select(State::all())
}

proptest! {
    /// The same for any mixture of states, with terminations in between.
    #[test]
    fn clean_up_keeps_pods_by_policy_in_any_mixture(
        ending in proptest::sample::select(&Ending::ALL[..]),
        policy in proptest::sample::select(&POLICIES[..]),
        mixtures in proptest::collection::vec((proptest::collection::vec(any_state(), 1..12), any::<bool>()), 0..4),
    ) {
        let mut world = running(2);
        ending.prepare(&mut world);
        for (states, terminate) in &mixtures {
            set_states(&mut world, states);
            world.settle();
            if *terminate {
                world.remove_terminating_pods();
            }
        }
        check_ending(world, ending, policy, "a mixture");
    }
}
