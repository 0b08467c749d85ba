//! Explores the step: whatever happens in whatever order, once it stops, the job comes to rest where it should.

mod model;
mod past;
mod truth;

use std::collections::HashSet;

use di_api::{CleanPodPolicy, DIJob, Origin, Phase, PlanEntry, Role};
use di_plan::{PodView, Stage, find, is_whole};
use proptest::{prelude::*, sample::select};

use super::world::COORDINATOR;
use model::Model;
use past::{LONGEST_LAG, Lag};
use truth::check_told;

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The server does not take it.
    Refused,
    /// It is done, and nobody is told so.
    Unanswered,
    /// The process dies before it; another goes on, which lists first.
    Dies,
}

/// Something that happens to a job.
#[derive(Clone, Debug)]
enum Happening {
    /// A reconcile whose caches are behind, each by itself. One of its writes may meet a fate, and one be `overtaken`: something else happens
    /// first, after the look that it follows from. A `hasty` one comes so soon after the last that what is not urgent waits.
    Reconcile {
        lag: Lag,
        hasty: bool,
        fault: Option<(usize, Fate)>,
        overtaken: Option<(usize, Box<Self>)>,
    },
    /// The nth pod starts.
    Start(usize),
    /// The nth pod's main container ends, if it is no coordinator.
    Exit(usize, i32),
    /// The coordinator's does.
    End(i32),
    /// The nth pod is evicted.
    Evict(usize),
    /// The node of the nth pod falls silent.
    Silent(usize),
    /// Somebody deletes the nth pod.
    Delete(usize),
    /// Somebody deletes the nth service.
    DeleteService(usize),
    /// Pods that were told to go, go.
    Gone,
    /// Somebody else makes a pod of the nth name that has none.
    Usurp(usize),
    /// Somebody else makes a service of the nth name that has none.
    UsurpService(usize),
    /// Pods and services of others go, and of earlier jobs.
    Clear,
    /// The user declares as many collectors.
    Declare(i32),
    /// The user declares as many learners of several GPUs.
    DeclareUnits(i32),
    /// The user holds the job, or lets it go on.
    Suspend(bool),
    /// The user wants another coordinator.
    Restart,
    /// The coordinator reports the nth replica of the plan.
    Report(usize),
    /// It asks for so many collectors, learners, or units.
    Ask(Role, usize),
    /// It gives so many collectors or learners back.
    GiveBack(Role, usize),
    /// The status is lost, as in a restore.
    LoseStatus,
    /// The user deletes the job, which waits for what it owns.
    DeleteJob,
    /// The job is deleted, and made again under its name.
    MakeAgain,
    /// The quota has no room, or has some.
    Quota(bool),
    /// The nodes have so many GPUs from now on.
    Nodes(Vec<i32>),
    /// There is a configuration for aggregators, or there is none.
    Configured(bool),
    /// Seconds go by.
    Wait(i64),
}

fn fault() -> impl Strategy<Value = Option<(usize, Fate)>> {
    let fate = prop_oneof![
        1 => Just(Fate::Refused),
        1 => Just(Fate::Unanswered),
        2 => Just(Fate::Dies),
    ];
    proptest::option::weighted(0.7, (0..12_usize, fate))
}

fn overtaken() -> impl Strategy<Value = Option<(usize, Box<Happening>)>> {
    let happening = prop_oneof![1 => of_pods(), 2 => of_users()];
    proptest::option::weighted(0.2, (0..12_usize, happening.prop_map(Box::new)))
}

fn lag() -> impl Strategy<Value = Lag> {
    let each = || 0..LONGEST_LAG;
    let behind = (each(), each(), each());
    prop_oneof![
        1 => Just(Lag::default()),
        2 => behind.prop_map(|(job, pods, services)| Lag { job, pods, services }),
    ]
}

fn nth() -> std::ops::Range<usize> {
    0..14
}

/// What pods do, and what is done to them.
fn of_pods() -> impl Strategy<Value = Happening> {
    prop_oneof![
        9 => nth().prop_map(Happening::Start),
        6 => (nth(), 0..2).prop_map(|(n, code)| Happening::Exit(n, code)),
        // Rarely with success: the rest of a run would be dull.
        2 => (0..7).prop_map(|n| Happening::End(i32::from(n > 0))),
        2 => nth().prop_map(Happening::Evict),
        2 => nth().prop_map(Happening::Silent),
        3 => nth().prop_map(Happening::Delete),
        3 => nth().prop_map(Happening::DeleteService),
        6 => Just(Happening::Gone),
        1 => nth().prop_map(Happening::Usurp),
        1 => nth().prop_map(Happening::UsurpService),
        1 => Just(Happening::Clear),
    ]
}

/// What a coordinator may ask for; an aggregator is asked for as a learner of several GPUs.
fn asked() -> impl Strategy<Value = Role> {
    select(vec![Role::Collector, Role::Learner, Role::Aggregator])
}

/// What users, coordinators and administrators do.
fn of_users() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => (0..4).prop_map(Happening::Declare),
        3 => (0..3).prop_map(Happening::DeclareUnits),
        3 => (0..3).prop_map(|n| Happening::Suspend(n == 0)),
        1 => Just(Happening::Restart),
        3 => nth().prop_map(Happening::Report),
        3 => (asked(), 1..3_usize).prop_map(|(role, n)| Happening::Ask(role, n)),
        2 => (asked(), 1..4_usize).prop_map(|(role, n)| Happening::GiveBack(role.counted_as(), n)),
        1 => Just(Happening::LoseStatus),
        1 => (0..4).prop_map(|n| if n == 0 { Happening::DeleteJob } else { Happening::MakeAgain }),
        2 => any::<bool>().prop_map(Happening::Quota),
        2 => proptest::collection::vec(0..9, 0..4).prop_map(Happening::Nodes),
        2 => any::<bool>().prop_map(Happening::Configured),
        3 => (1..400_i64).prop_map(Happening::Wait),
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    let reconcile = (lag(), any::<bool>(), fault(), overtaken());
    let reconcile = reconcile.prop_map(|(lag, hasty, fault, overtaken)| Happening::Reconcile {
        lag,
        hasty,
        fault,
        overtaken,
    });
    prop_oneof![2 => of_pods(), 1 => reconcile, 1 => of_users()]
}

/// What a user may ask of the end.
#[derive(Clone, Debug)]
struct Limits {
    backoff: i32,
    deadline: Option<i64>,
    ttl: Option<i32>,
    policy: CleanPodPolicy,
}

fn limits() -> impl Strategy<Value = Limits> {
    let policies = [
        CleanPodPolicy::Running,
        CleanPodPolicy::All,
        CleanPodPolicy::None,
    ];
    (
        prop_oneof![0..4, Just(1000)],
        proptest::option::weighted(0.2, 1..2000_i64),
        proptest::option::weighted(0.3, 0..600),
        select(policies.to_vec()),
    )
        .prop_map(|(backoff, deadline, ttl, policy)| Limits {
            backoff,
            deadline,
            ttl,
            policy,
        })
}

/// Names of the wanted of one role.
fn wanted(plan: &[PlanEntry], role: Role) -> HashSet<&str> {
    let of_role = |entry: &&PlanEntry| entry.role == role && entry.is_wanted();
    plan.iter()
        .filter(of_role)
        .map(|entry| entry.name.as_str())
        .collect()
}

/// What the spec declares of a role.
fn declared(job: &DIJob, role: Role) -> Option<i32> {
    match role {
        Role::Aggregator => Some(job.spec.learner.as_ref()?.groups[0].replicas),
        role => job.spec.declared(role).map(|part| part.replicas),
    }
}

/// A job that goes on has what it wants and nothing else.
fn check_running(model: &Model) {
    let status = model.status();
    let (pods, services) = model.objects();
    assert_eq!(status.phase, Some(Phase::Running));
    assert_eq!(status.reason, None, "all troubles have passed");
    assert_eq!(pods[COORDINATOR].stage(), Stage::Active);
    let is_done = |name: &str| find(&status.plan, name).is_some_and(|entry| entry.done);
    for role in [
        Role::Collector,
        Role::Learner,
        Role::Aggregator,
        Role::DdpLearner,
    ] {
        let wanted = wanted(&status.plan, role);
        let of_origin = |origin| {
            let of_role = |e: &&PlanEntry| e.role == role && e.origin == origin && e.is_wanted();
            i32::try_from(status.plan.iter().filter(of_role).count()).unwrap()
        };
        if let Some(declared) = declared(&model.job, role) {
            assert_eq!(of_origin(Origin::Declared), declared, "{role}");
            // Whose the pods were is not known any more where the status was lost.
            let asked = model.asked.get(&role).copied().unwrap_or(0);
            assert!(
                model.lost_status || of_origin(Origin::Requested) == asked,
                "{role}"
            );
        }
        let live = |pod: &&PodView| pod.role == Some(role) && pod.end.is_none();
        for pod in pods.values().filter(live) {
            assert!(wanted.contains(pod.name.as_str()), "{} runs", pod.name);
        }
        for name in &wanted {
            if is_done(name) {
                continue;
            }
            assert!(pods.contains_key(*name), "{name} is not there");
            assert!(services.contains_key(*name), "{name} has no service");
        }
    }
    for unit in wanted(&status.plan, Role::Aggregator) {
        assert!(is_whole(&status.plan, unit), "{unit} lacks ddp learners");
    }
    let numbered = || status.plan.iter().filter(|entry| entry.is_wanted());
    let numbers: HashSet<_> = numbered().map(|entry| (entry.role, entry.index)).collect();
    assert_eq!(numbers.len(), numbered().count(), "numbers are one's own");
    assert!(services.contains_key(COORDINATOR));
    for service in services.keys() {
        let stands = pods.contains_key(service) || is_done(service);
        assert!(stands, "{service} stands for nobody");
    }
}

fn check_held(model: &Model) {
    let status = model.status();
    let (pods, services) = model.objects();
    assert_eq!(status.phase, Some(Phase::Suspended));
    assert!(pods.is_empty() && services.is_empty());
    assert!(status.plan.iter().all(|entry| entry.uid.is_none()));
}

fn check_ended(model: &Model) {
    let (pods, services) = model.objects();
    assert!(services.is_empty());
    assert!(model.status().plan.is_empty());
    match model.job.spec.clean_pod_policy {
        CleanPodPolicy::None => {}
        CleanPodPolicy::All => assert!(pods.is_empty()),
        CleanPodPolicy::Running => {
            let mut live = pods.values().filter(|pod| pod.uses_cluster());
            let ends = |pod: &PodView| pod.told_to_end || pod.deleting || pod.end.is_some();
            assert!(live.all(|pod| pod.role == Some(Role::Coordinator) && ends(pod)));
        }
    }
}

fn check(model: &Model) {
    check_told(model);
    if model.status().phase.is_some_and(Phase::is_terminal) {
        check_ended(model);
    } else if model.job.spec.suspend {
        check_held(model);
    } else {
        check_running(model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn once_faults_stop_the_job_rests_where_it_should(
        limits in limits(),
        happenings in proptest::collection::vec(happening(), 0..70),
    ) {
        let mut model = Model::new(&limits);
        for happening in &happenings {
            model.happens(happening);
        }
        model.rest();
        if !model.deleted {
            check(&model);
        }
        // One that was held goes on.
        model.happens(&Happening::Suspend(false));
        model.rest();
        if !model.deleted {
            check(&model);
        }
        let writes = model.writes;
        model.reconcile(Lag::default(), false, None);
        prop_assert_eq!(writes, model.writes, "at rest, nothing is written");
    }
}
