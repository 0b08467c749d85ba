//! What is left of a job, however it ends and whatever its pods are doing then: exactly what its policy says.

use std::collections::{BTreeMap, BTreeSet};

use di_api::{CleanPodPolicy, ConditionType, DIJobStatus, Phase, Role, condition, is_true};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use proptest::prelude::*;

use super::{
    states::{Blow, Main, RUNNING, Sidecar, State},
    world::World,
};

const POLICIES: [CleanPodPolicy; 3] = [
    CleanPodPolicy::None,
    CleanPodPolicy::Running,
    CleanPodPolicy::All,
];
const COORDINATOR: &str = "j-coordinator";
const LIMIT: i64 = 60;
const TTL: i32 = 30;

/// A job with as many collectors, plain learners, and learners of six GPUs: each of these is an aggregator and two ddp learners.
fn running(of_each: usize) -> World {
    let yaml = format!(
        r#"
apiVersion: diengine.opendilab.org/v1alpha2
kind: DIJob
metadata: {{name: j}}
spec:
  coordinator: {{template: {{spec: {{containers: [{{name: di-container, image: c}}]}}}}}}
  collector: {{template: {{spec: {{containers: [{{name: di-container, image: k}}]}}}}, replicas: {of_each}}}
  learner:
    template: {{spec: {{containers: [{{name: di-container, image: l}}]}}}}
    replicas: {of_each}
    groups: [{{name: big, replicas: {of_each}, resources: {{gpus: "6"}}}}]
"#
    );
    let mut world = World::new(&yaml);
    world.settle();
    let names: Vec<_> = world.pods.keys().cloned().collect();
    assert_eq!(names.len(), 1 + 5 * of_each);
    for name in &names {
        world.bring(name, RUNNING);
    }
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Running));
    world
}

/// How a job comes to its end, or to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Succeeds,
    SucceedsBesideASidecar,
    SucceedsAfterAnEviction,
    SucceedsAfterTheLossOfItsNode,
    Fails,
    IsOomKilledBesideASidecar,
    FailsTooOften,
    TakesTooLong,
    ExpiresAfterSuccess,
    ExpiresAfterFailure,
    ExpiresAfterItsDeadline,
    IsHeld,
    IsDeleted,
}

impl Way {
    const ALL: [Self; 13] = [
        Self::Succeeds,
        Self::SucceedsBesideASidecar,
        Self::SucceedsAfterAnEviction,
        Self::SucceedsAfterTheLossOfItsNode,
        Self::Fails,
        Self::IsOomKilledBesideASidecar,
        Self::FailsTooOften,
        Self::TakesTooLong,
        Self::ExpiresAfterSuccess,
        Self::ExpiresAfterFailure,
        Self::ExpiresAfterItsDeadline,
        Self::IsHeld,
        Self::IsDeleted,
    ];

    /// Whether the job is deleted when it was kept long enough.
    fn expires(self) -> bool {
        matches!(
            self,
            Self::ExpiresAfterSuccess | Self::ExpiresAfterFailure | Self::ExpiresAfterItsDeadline
        )
    }

    /// What happens before, while the replicas run.
    fn begin(self, world: &mut World) {
        match self {
            Self::SucceedsAfterAnEviction => lose(world, RUNNING.struck(Blow::Evicted)),
            Self::SucceedsAfterTheLossOfItsNode => {
                let lost = RUNNING.struck(Blow::NodeLost);
                world.bring(COORDINATOR, lost);
                world.settle();
                assert_eq!(world.status().phase, Some(Phase::Unknown));
                lose(world, lost.deleting());
            }
            Self::FailsTooOften => {
                world.job.spec.backoff_limit = 2;
                for _ in 0..2 {
                    lose(world, State::of(Main::Exited(1), Sidecar::None));
                }
            }
            Self::TakesTooLong | Self::ExpiresAfterItsDeadline => {
                world.job.spec.active_deadline_seconds = Some(LIMIT);
            }
            _ => {}
        }
        world.job.spec.ttl_seconds_after_finished = self.expires().then_some(TTL);
    }

    /// What it ends by.
    fn end(self, world: &mut World) {
        let mut coordinator = |main, sidecar| world.bring(COORDINATOR, State::of(main, sidecar));
        match self {
            Self::Succeeds
            | Self::SucceedsAfterAnEviction
            | Self::SucceedsAfterTheLossOfItsNode
            | Self::ExpiresAfterSuccess => coordinator(Main::Exited(0), Sidecar::None),
            Self::SucceedsBesideASidecar => coordinator(Main::Exited(0), Sidecar::Running),
            Self::Fails | Self::FailsTooOften | Self::ExpiresAfterFailure => {
                coordinator(Main::Exited(3), Sidecar::None);
            }
            Self::IsOomKilledBesideASidecar => coordinator(Main::OomKilled, Sidecar::Running),
            Self::TakesTooLong | Self::ExpiresAfterItsDeadline => {
                world.now += SignedDuration::from_secs(LIMIT);
            }
            Self::IsHeld => world.job.spec.suspend = true,
            Self::IsDeleted => {
                let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now);
                world.job.metadata.deletion_timestamp = Some(now);
            }
        }
    }

    /// Phase, reason, and how often the coordinator was started again on account of its limit.
    fn outcome(self) -> (Phase, Option<&'static str>, i32) {
        match self {
            Self::Succeeds
            | Self::SucceedsBesideASidecar
            | Self::SucceedsAfterAnEviction
            | Self::SucceedsAfterTheLossOfItsNode
            | Self::ExpiresAfterSuccess => (Phase::Succeeded, Some("CoordinatorSucceeded"), 0),
            Self::Fails | Self::IsOomKilledBesideASidecar | Self::ExpiresAfterFailure => {
                (Phase::Failed, Some("CoordinatorFailed"), 0)
            }
            Self::FailsTooOften => (Phase::Failed, Some("CoordinatorFailed"), 2),
            Self::TakesTooLong | Self::ExpiresAfterItsDeadline => {
                (Phase::Failed, Some("DeadlineExceeded"), 0)
            }
            Self::IsHeld => (Phase::Suspended, None, 0),
            Self::IsDeleted => (Phase::Running, None, 0),
        }
    }
}

/// The coordinator is lost so, and another comes.
fn lose(world: &mut World, state: State) {
    let before = world.pods[COORDINATOR].uid.clone();
    world.bring(COORDINATOR, state);
    world.settle();
    if !world.pods[COORDINATOR].deleting {
        // Not the first one in a row.
        let wait = world.look().again.unwrap();
        world.now += wait;
        world.settle();
    }
    assert!(world.pods[COORDINATOR].deleting);
    world.kubelet_ends_deleted();
    world.settle();
    assert_ne!(world.pods[COORDINATOR].uid, before);
    world.bring(COORDINATOR, RUNNING);
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Running));
}

/// The rule: whether a pod that nobody else told to go is left at the end.
fn stays(policy: CleanPodPolicy, pod: &Pod) -> bool {
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

/// Names of the pods of which the rule says so.
fn staying(world: &World, way: Way, policy: CleanPodPolicy) -> BTreeSet<String> {
    let left = |name: &String| match way {
        Way::IsHeld => false,
        Way::IsDeleted => true,
        _ => stays(policy, world.object(name)),
    };
    let there = world.pods.values().filter(|pod| !pod.deleting);
    there.map(|pod| pod.name.clone()).filter(left).collect()
}

fn names<V>(all: &BTreeMap<String, V>) -> BTreeSet<String> {
    all.keys().cloned().collect()
}

/// Lets all come to rest, and compares what is left.
fn check_what_is_left(world: &mut World, left: &BTreeSet<String>, what: &str) {
    let heard = names(&world.services);
    world.settle();
    let there = names(&world.pods);
    let going = |name: &String| world.pods.get(name).is_some_and(|pod| pod.deleting);
    for name in &there {
        assert_eq!(going(name), !left.contains(name), "{what}: {name}");
    }
    // Whoever still ends his work is heard until then, and nobody else.
    let heard: BTreeSet<_> = heard.into_iter().filter(going).collect();
    assert_eq!(names(&world.services), heard, "{what}");
    world.kubelet_ends_deleted();
    world.settle();
    assert_eq!(names(&world.pods), *left, "{what}");
    assert!(world.services.is_empty(), "{what}: {:?}", world.services);
}

/// What stays may not go on, unless the policy is that nothing is done.
fn check_nothing_works_on(world: &World, way: Way, policy: CleanPodPolicy, what: &str) {
    let ended = !matches!(way, Way::IsHeld | Way::IsDeleted);
    for pod in world.pods.values() {
        let works = pod.uses_cluster() && pod.end.is_none();
        let expected = ended && policy == CleanPodPolicy::Running && works;
        assert_eq!(pod.told_to_end, expected, "{what}: {}", pod.name);
    }
}

fn conditions(status: &DIJobStatus) -> Vec<(&str, &str)> {
    let all = [
        ConditionType::Succeeded,
        ConditionType::Failed,
        ConditionType::Running,
    ];
    all.into_iter()
        .filter(|type_| is_true(&status.conditions, *type_))
        .map(|type_| {
            let condition = condition(&status.conditions, type_).unwrap();
            (type_.as_str(), condition.reason.as_str())
        })
        .collect()
}

/// The job says how it ended, of nothing else that it still is, and counts what is left.
fn check_status(world: &World, phase: Phase, reason: Option<&str>, restarts: i32, what: &str) {
    let status = world.status();
    let told = (status.phase, status.reason.as_deref(), status.restarts);
    assert_eq!(told, (Some(phase), reason, restarts), "{what}");
    if phase.is_terminal() {
        let reason = reason.unwrap();
        let expected = [(phase.as_str(), reason)];
        assert_eq!(conditions(status), expected, "{what}");
        assert!(status.plan.is_empty(), "{what}: {:?}", status.plan);
        assert!(status.start_time <= status.completion_time, "{what}");
        assert!(status.completion_time.is_some(), "{what}");
    }
    let counted: i32 = status
        .replica_status
        .values()
        .map(|n| n.active + n.pending + n.succeeded + n.failed)
        .sum();
    assert_eq!(
        usize::try_from(counted).unwrap(),
        world.pods.len(),
        "{what}"
    );
}

/// Whatever becomes of what was left, and however long it takes, the job stays as it ended.
fn check_it_stays_so(world: &mut World, what: &str) {
    let latched = |status: &DIJobStatus| {
        let ends = [ConditionType::Succeeded, ConditionType::Failed];
        let ends = ends.map(|type_| condition(&status.conditions, type_).cloned());
        (status.phase, status.completion_time.clone(), ends)
    };
    let before = latched(world.status());
    let written = world.status_writes;
    world.settle();
    assert_eq!(world.status_writes, written, "{what}: written again");
    world.pods.clear();
    world.now += SignedDuration::from_hours(10_000);
    world.settle();
    assert!(world.pods.is_empty() && world.services.is_empty(), "{what}");
    assert_eq!(latched(world.status()), before, "{what}");
}

/// The job comes to its end from here, and what is left is what the rule says.
fn ends(mut world: World, way: Way, policy: CleanPodPolicy, what: &str) {
    world.job.spec.clean_pod_policy = policy;
    way.end(&mut world);
    let left = staying(&world, way, policy);
    let (phase, reason, restarts) = way.outcome();
    match way {
        Way::IsDeleted => {
            let (pods, services) = (names(&world.pods), names(&world.services));
            world.settle();
            assert_eq!(names(&world.pods), pods, "{what}");
            assert_eq!(names(&world.services), services, "{what}");
            assert!(
                world
                    .pods
                    .values()
                    .all(|pod| pod.deleting != left.contains(&pod.name))
            );
        }
        Way::IsHeld => {
            let planned = wanted(&world);
            check_what_is_left(&mut world, &left, what);
            check_status(&world, phase, reason, restarts, what);
            goes_on(&mut world, &planned, what);
        }
        _ => {
            check_what_is_left(&mut world, &left, what);
            check_nothing_works_on(&world, way, policy, what);
            check_status(&world, phase, reason, restarts, what);
            assert!(!world.job_deleted, "{what}");
            check_it_stays_so(&mut world, what);
            assert_eq!(world.job_deleted, way.expires(), "{what}");
        }
    }
}

fn wanted(world: &World) -> BTreeSet<String> {
    let wanted = world.plan().iter().filter(|entry| entry.is_wanted());
    wanted.map(|entry| entry.name.clone()).collect()
}

/// A held job that is let go on has the replicas again that were planned, but for those that had done their work.
fn goes_on(world: &mut World, planned: &BTreeSet<String>, what: &str) {
    assert_eq!(wanted(world), *planned, "{what}");
    world.job.spec.suspend = false;
    // Replacements may have to wait.
    world.now += SignedDuration::from_secs(600);
    world.settle();
    let plan = world.plan().iter();
    let undone = plan.filter(|entry| entry.is_wanted() && !entry.done);
    let mut expected: BTreeSet<_> = undone.map(|entry| entry.name.clone()).collect();
    assert!(expected.is_subset(planned));
    expected.insert(COORDINATOR.to_owned());
    assert_eq!(names(&world.pods), expected, "{what}");
    assert_eq!(names(&world.services), expected, "{what}");
    assert_eq!(world.status().phase, Some(Phase::Created), "{what}");
}

/// Brings the replicas into these states, one after the other, each role through all of them.
fn scatter(world: &mut World, states: &[State]) {
    let mut of_role: BTreeMap<Role, usize> = BTreeMap::new();
    for name in names(&world.pods) {
        let role = world.pods[&name].role.unwrap();
        if role == Role::Coordinator {
            continue;
        }
        // Those of one unit are in different ones.
        let next = of_role.entry(role).or_insert(role as usize);
        world.bring(&name, states[*next % states.len()]);
        *next += 1;
    }
}

#[test]
fn states_are_seen_as_what_they_are() {
    let world = running(1);
    for state in State::all() {
        for name in names(&world.pods) {
            let mut world = world.clone();
            world.bring(&name, state);
            let pod = &world.pods[&name];
            assert_eq!(pod.uses_cluster(), !state.is_over(), "{state:?}");
            let well = pod.end.as_ref().map(|end| end.succeeded());
            assert_eq!(well, state.ended_well(), "{state:?}");
            assert_eq!(pod.disrupted, state.is_disrupted(), "{state:?}");
            assert_eq!(pod.deleting, state.deleting, "{state:?}");
            let counted = format!("{:?}", pod.stage()).to_lowercase();
            assert_eq!(counted, state.counted(), "{state:?}");
        }
    }
}

/// Every way x policy x state of every role, as the end finds them and after they were reacted to.
#[test]
fn f9_what_is_left_is_what_the_policy_says_whatever_the_replicas_do() {
    // A job with all of them at the same time takes as long as it is large, squared.
    for states in State::all().chunks(35) {
        let world = running(states.len());
        for way in Way::ALL {
            let mut world = world.clone();
            way.begin(&mut world);
            scatter(&mut world, states);
            for policy in POLICIES {
                let what = format!("{way:?}, {policy:?}, at once");
                ends(world.clone(), way, policy, &what);
            }
            world.settle();
            for policy in POLICIES {
                let what = format!("{way:?}, {policy:?}, later");
                ends(world.clone(), way, policy, &what);
            }
        }
    }
}

/// What the orchestrator is to make of a job.
#[derive(Clone, Copy, Debug)]
enum Wish {
    /// It has time.
    None,
    /// It has no time left.
    Late,
    /// Its user wants it held.
    Held,
}

/// Every state of the coordinator x policy x limit, for a job that has time, is late, or is to be held.
#[test]
fn the_coordinator_decides_how_a_job_ends_whatever_else_is_wished() {
    let world = running(1);
    for state in State::all() {
        for (wish, limit, policy) in [Wish::None, Wish::Late, Wish::Held]
            .into_iter()
            .flat_map(|wish| [(wish, 0), (wish, 1)])
            .flat_map(|(wish, limit)| POLICIES.map(|policy| (wish, limit, policy)))
        {
            let mut world = world.clone();
            world.job.spec.backoff_limit = limit;
            world.job.spec.clean_pod_policy = policy;
            world.bring(COORDINATOR, state);
            match wish {
                Wish::None => {}
                Wish::Late => {
                    world.job.spec.active_deadline_seconds = Some(LIMIT);
                    world.now += SignedDuration::from_secs(LIMIT);
                }
                Wish::Held => world.job.spec.suspend = true,
            }
            decides(world, state, wish, policy);
        }
    }
}

fn decides(mut world: World, state: State, wish: Wish, policy: CleanPodPolicy) {
    let limit = world.job.spec.backoff_limit;
    let what = format!("{state:?}, {wish:?}, {limit}, {policy:?}");
    let counts = state.ended_well() == Some(false) && !state.deleting && !state.is_disrupted();
    let ended = match (state.ended_well(), wish) {
        (Some(true), _) => Some((Phase::Succeeded, "CoordinatorSucceeded")),
        _ if counts && limit == 0 => Some((Phase::Failed, "CoordinatorFailed")),
        (_, Wish::Late) => Some((Phase::Failed, "DeadlineExceeded")),
        _ => None,
    };
    if let Some((phase, reason)) = ended {
        let left = staying(&world, Way::Succeeds, policy);
        check_what_is_left(&mut world, &left, &what);
        check_status(&world, phase, Some(reason), 0, &what);
        check_it_stays_so(&mut world, &what);
        return;
    }
    let planned = wanted(&world);
    let before = world.pods[COORDINATOR].uid.clone();
    world.settle();
    if matches!(wish, Wish::Held) {
        check_what_is_left(&mut world, &BTreeSet::new(), &what);
        check_status(&world, Phase::Suspended, None, 0, &what);
        goes_on(&mut world, &planned, &what);
        return;
    }
    let restarts = i32::from(counts);
    assert_eq!(world.status().restarts, restarts, "{what}");
    let goes = state.deleting || state.ended_well().is_some();
    assert_eq!(world.pods[COORDINATOR].deleting, goes, "{what}");
    world.kubelet_ends_deleted();
    world.settle();
    assert_eq!(world.pods[COORDINATOR].uid != before, goes, "{what}");
    assert_eq!(
        conditions(world.status())
            .iter()
            .filter(|c| c.0 != "Running")
            .count(),
        0
    );
    assert_eq!(wanted(&world), planned, "{what}");
    assert_eq!(world.pods.len(), planned.len() + 1, "{what}");
}

fn any_state() -> impl Strategy<Value = State> {
    proptest::sample::select(State::all())
}

proptest! {
    /// The same of any mixture, with whatever the kubelets get done in between.
    #[test]
    fn what_is_left_of_any_mixture_is_what_the_policy_says(
        way in proptest::sample::select(&Way::ALL[..]),
        policy in proptest::sample::select(&POLICIES[..]),
        mixtures in proptest::collection::vec((proptest::collection::vec(any_state(), 1..12), any::<bool>()), 0..4),
    ) {
        let mut world = running(2);
        way.begin(&mut world);
        for (states, gone) in &mixtures {
            scatter(&mut world, states);
            world.settle();
            if *gone {
                world.kubelet_ends_deleted();
            }
        }
        ends(world, way, policy, "a mixture");
    }
}
