//! Property test of the step: after any sequence of happenings the job settles in the correct
//! state.

mod lagging_caches;
mod model;
mod queue_checks;
mod queue_happenings;
mod status_checks;

use std::collections::HashSet;

use di_api::{
    CleanPodPolicy, DIJob, ElasticQueueing, Origin, Phase, PlanEntry, Reason, Role, UnitRestart,
    UnitSpec, UnitStart,
};
use di_plan::{PodView, Stage, find_entry, is_group_complete};
use proptest::{prelude::*, sample::select};

use super::fake_cluster::COORDINATOR;
use lagging_caches::{Lag, MAX_LAG};
use model::Model;
use queue_checks::check_queue;
use queue_happenings::{QueueHappening, queue_happening};
use status_checks::check_status;

/// A fault of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteFault {
    /// The API server rejects it.
    Rejected,
    /// It succeeds, but the response is lost.
    ResponseLost,
    /// The process is killed before it. The next process lists first.
    Killed,
}

/// An event in the life of a job.
#[derive(Clone, Debug)]
enum Happening {
    /// A reconcile with lagging caches. One of its writes may have a fault. One may be `preceded`
    /// by another happening, after the step that it follows from. A `hasty` one comes so soon
    /// after the last that writes that are not urgent are debounced.
    Reconcile {
        lag: Lag,
        hasty: bool,
        fault: Option<(usize, WriteFault)>,
        preceded: Option<(usize, Box<Self>)>,
    },
    /// The nth pod starts.
    Start(usize),
    /// The main container of the nth pod ends, unless it is the coordinator.
    Exit(usize, i32),
    /// The main container of the coordinator ends.
    EndCoordinator(i32),
    /// The nth pod is evicted.
    Evict(usize),
    /// The node of the nth pod stops responding.
    LoseNode(usize),
    /// Another client deletes the nth pod.
    Delete(usize),
    /// Another client deletes the nth service.
    DeleteService(usize),
    /// Kubelets remove all terminating pods.
    Terminate,
    /// Another client creates a pod with the nth unused name.
    TakePodName(usize),
    /// Another client creates a service with the nth unused name.
    TakeServiceName(usize),
    /// Pods and services of other clients and of previous jobs are deleted.
    DeleteForeign,
    /// A user declares this number of collectors.
    Declare(i32),
    /// A user declares this number of learner groups.
    DeclareGroups(i32),
    /// A user sets the number of collectors in the floor of the gang.
    SetMinCollectors(i32),
    /// A user changes the CPUs of collectors.
    SetCpus(&'static str),
    /// A user chooses how added replicas get quota.
    SetElastic(ElasticQueueing),
    /// A user suspends the job, or resumes it.
    Suspend(bool),
    /// A user restarts the coordinator.
    Restart,
    /// The coordinator reports the nth replica of the plan as failed.
    Report(usize),
    /// The coordinator requests this number of collectors, learners, or learner groups.
    Request(Role, usize),
    /// The coordinator removes this number of collectors or learners.
    Release(Role, usize),
    /// The status is lost, as after a restore from a backup.
    LoseStatus,
    /// A user deletes the job with foreground deletion.
    DeleteJob,
    /// The job is deleted and recreated under the same name.
    Recreate,
    /// The quota is exhausted, or not.
    Quota(bool),
    /// The nodes have these numbers of GPUs.
    Nodes(Vec<i32>),
    /// The AggregatorConfig exists, or not.
    Configured(bool),
    /// The AggregatorConfig gets other CPUs. Never between a step and its writes: pods are created
    /// with the newest template, which that step does not know.
    SetAggregatorCpus(&'static str),
    /// A user adds the label of a queue, or removes it.
    Enqueue(bool),
    /// Kueue or the gang scheduler acts.
    Queue(QueueHappening),
    /// Seconds pass.
    Wait(i64),
}

fn write_fault() -> impl Strategy<Value = Option<(usize, WriteFault)>> {
    let fault = prop_oneof![
        1 => Just(WriteFault::Rejected),
        1 => Just(WriteFault::ResponseLost),
        2 => Just(WriteFault::Killed),
    ];
    proptest::option::weighted(0.7, (0..12_usize, fault))
}

fn preceded() -> impl Strategy<Value = Option<(usize, Box<Happening>)>> {
    let happening = prop_oneof![
        2 => pod_happening(),
        4 => user_happening(),
        1 => queue_happening().prop_map(Happening::Queue),
    ];
    proptest::option::weighted(0.2, (0..12_usize, happening.prop_map(Box::new)))
}

fn any_lag() -> impl Strategy<Value = Lag> {
    let each = || 0..MAX_LAG;
    let lags = (each(), each(), each(), each(), each());
    let lags = lags.prop_map(|(job, pods, services, workloads, groups)| Lag {
        job,
        pods,
        services,
        workloads,
        groups,
    });
    prop_oneof![1 => Just(Lag::default()), 2 => lags]
}

fn nth_index() -> std::ops::Range<usize> {
    0..14
}

/// Happenings of pods and services.
fn pod_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        9 => nth_index().prop_map(Happening::Start),
        6 => (nth_index(), 0..2).prop_map(|(n, code)| Happening::Exit(n, code)),
        // Rarely with success: afterwards little can happen.
        2 => (0..7).prop_map(|n| Happening::EndCoordinator(i32::from(n > 0))),
        2 => nth_index().prop_map(Happening::Evict),
        2 => nth_index().prop_map(Happening::LoseNode),
        3 => nth_index().prop_map(Happening::Delete),
        3 => nth_index().prop_map(Happening::DeleteService),
        6 => Just(Happening::Terminate),
        1 => nth_index().prop_map(Happening::TakePodName),
        1 => nth_index().prop_map(Happening::TakeServiceName),
        1 => Just(Happening::DeleteForeign),
    ]
}

/// Roles that a coordinator can request. `Aggregator` is a learner with several GPUs.
fn requested_role() -> impl Strategy<Value = Role> {
    select(vec![Role::Collector, Role::Learner, Role::Aggregator])
}

fn any_cpus() -> impl Strategy<Value = &'static str> {
    select(vec!["1", "2", "3"])
}

fn any_elastic() -> impl Strategy<Value = ElasticQueueing> {
    select(vec![ElasticQueueing::PerReplica, ElasticQueueing::Whole])
}

/// Happenings by users, coordinators and administrators.
fn user_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => (0..4).prop_map(Happening::Declare),
        3 => (0..3).prop_map(Happening::DeclareGroups),
        2 => (0..4).prop_map(Happening::SetMinCollectors),
        2 => any_cpus().prop_map(Happening::SetCpus),
        1 => any_elastic().prop_map(Happening::SetElastic),
        3 => (0..3).prop_map(|n| Happening::Suspend(n == 0)),
        1 => Just(Happening::Restart),
        3 => nth_index().prop_map(Happening::Report),
        3 => (requested_role(), 1..3_usize).prop_map(|(role, n)| Happening::Request(role, n)),
        2 => (requested_role(), 1..4_usize).prop_map(|(role, n)| Happening::Release(role.counted_as(), n)),
        1 => Just(Happening::LoseStatus),
        1 => (0..4).prop_map(|n| if n == 0 { Happening::DeleteJob } else { Happening::Recreate }),
        2 => any::<bool>().prop_map(Happening::Quota),
        2 => proptest::collection::vec(0..9, 0..4).prop_map(Happening::Nodes),
        2 => any::<bool>().prop_map(Happening::Configured),
        2 => any::<bool>().prop_map(Happening::Enqueue),
        3 => (1..400_i64).prop_map(Happening::Wait),
    ]
}

fn any_happening() -> impl Strategy<Value = Happening> {
    let reconcile = (any_lag(), any::<bool>(), write_fault(), preceded());
    let reconcile = reconcile.prop_map(|(lag, hasty, fault, preceded)| Happening::Reconcile {
        lag,
        hasty,
        fault,
        preceded,
    });
    let queue = queue_happening().prop_map(Happening::Queue);
    let aggregator = any_cpus().prop_map(Happening::SetAggregatorCpus);
    let user = user_happening();
    prop_oneof![8 => pod_happening(), 4 => reconcile, 4 => user, 4 => queue, 1 => aggregator]
}

/// Limits in the spec, the clean-up policy, the queue, the gang and the units.
#[derive(Clone, Debug)]
struct Limits {
    backoff: i32,
    deadline: Option<i64>,
    ttl: Option<i32>,
    policy: CleanPodPolicy,
    /// Whether the job is in a queue. If not, its label is never added.
    queued: bool,
    /// Number of collectors in the floor of its gang. `None` without a gang.
    gang: Option<i32>,
    /// The units of collectors. `None` if each collector is one pod.
    unit: Option<UnitSpec>,
}

fn any_unit() -> impl Strategy<Value = UnitSpec> {
    let restart = select(vec![UnitRestart::Unit, UnitRestart::Pod]);
    let start = select(vec![UnitStart::Together, UnitStart::LeaderFirst]);
    (2..4_i32, restart, start).prop_map(|(size, restart, start)| UnitSpec {
        size,
        leader_template: None,
        restart,
        topology_key: String::new(),
        start,
    })
}

fn any_limits() -> impl Strategy<Value = Limits> {
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
        any::<bool>(),
        proptest::option::weighted(0.4, 0..3),
        proptest::option::weighted(0.4, any_unit()),
    )
        .prop_map(
            |(backoff, deadline, ttl, policy, queued, gang, unit)| Limits {
                backoff,
                deadline,
                ttl,
                policy,
                queued,
                gang,
                unit,
            },
        )
}

/// Names of the wanted replicas of a role.
fn wanted_names(plan: &[PlanEntry], role: Role) -> HashSet<&str> {
    let of_role = |entry: &&PlanEntry| entry.role == role && entry.is_wanted();
    plan.iter()
        .filter(of_role)
        .map(|entry| entry.name.as_str())
        .collect()
}

/// Returns the declared count of a role.
fn declared_count(job: &DIJob, role: Role) -> Option<i32> {
    match role {
        Role::Aggregator => Some(job.spec.learner.as_ref()?.groups[0].replicas),
        role => job.spec.declared(role).map(|part| part.replicas),
    }
}

/// Checks that a running job has exactly its wanted replicas.
fn check_running(model: &Model) {
    let status = model.status();
    let (pods, services) = model.objects();
    assert_eq!(status.phase, Some(Phase::Running));
    // Pods from a time without the API of the gang scheduler are in no gang.
    let lacks_gang = model.gang().scheduler.is_some() && status.scheduling.is_none();
    let reason = lacks_gang.then(|| Reason::NoGangScheduler.as_str());
    assert_eq!(status.reason.as_deref(), reason, "all faults are over");
    assert_eq!(pods[COORDINATOR].stage(), Stage::Active);
    let is_done = |name: &str| find_entry(&status.plan, name).is_some_and(|entry| entry.done);
    for role in [
        Role::Collector,
        Role::Learner,
        Role::Aggregator,
        Role::DdpLearner,
    ] {
        let wanted = wanted_names(&status.plan, role);
        let of_origin = |origin| {
            let counts = |e: &PlanEntry| e.is_replica() || role == Role::DdpLearner;
            let of_role =
                |e: &&PlanEntry| e.role == role && e.origin == origin && e.is_wanted() && counts(e);
            i32::try_from(status.plan.iter().filter(of_role).count()).unwrap()
        };
        if let Some(declared) = declared_count(&model.job, role) {
            assert_eq!(of_origin(Origin::Declared), declared, "{role}");
            // After a lost status the origin of the pods is unknown.
            let requested = model.requested.get(&role).copied().unwrap_or(0);
            assert!(
                model.lost_status || of_origin(Origin::Requested) == requested,
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
            assert!(pods.contains_key(*name), "{name} does not exist");
            assert!(services.contains_key(*name), "{name} has no service");
        }
    }
    let wanted = || status.plan.iter().filter(|entry| entry.is_wanted());
    for group in wanted().filter(|entry| entry.leads_group() && !entry.done) {
        assert!(
            is_group_complete(&status.plan, &group.name),
            "{group:?} lacks pods"
        );
    }
    let place = |entry: &PlanEntry| {
        let position = entry.unit.as_ref().map_or(0, |place| place.index);
        (entry.role, entry.index, position)
    };
    let places: HashSet<_> = wanted().map(place).collect();
    assert_eq!(places.len(), wanted().count(), "places are unique");
    assert!(services.contains_key(COORDINATOR));
    for service in services.keys() {
        let is_used = pods.contains_key(service) || is_done(service);
        assert!(is_used, "service {service} is unused");
    }
}

fn check_suspended(model: &Model) {
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
            let mut live = pods.values().filter(|pod| pod.is_active());
            let is_stopped =
                |pod: &PodView| pod.deadline_requested || pod.deleting || pod.end.is_some();
            assert!(live.all(|pod| pod.role == Some(Role::Coordinator) && is_stopped(pod)));
        }
    }
}

fn check_settled(model: &Model) {
    check_status(model);
    check_queue(model);
    if model.status().phase.is_some_and(Phase::is_terminal) {
        check_ended(model);
    } else if model.job.spec.suspend {
        check_suspended(model);
    } else {
        check_running(model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn job_settles_correctly_after_faults_stop(
        limits in any_limits(),
        happenings in proptest::collection::vec(any_happening(), 0..70),
    ) {
        let mut model = Model::new(&limits);
        for happening in &happenings {
            model.apply_happening(happening);
        }
        model.settle();
        if !model.deleted {
            check_settled(&model);
        }
        // A suspended job is resumed.
        model.apply_happening(&Happening::Suspend(false));
        model.settle();
        if !model.deleted {
            check_settled(&model);
        }
        let writes = model.writes;
        model.reconcile(Lag::default(), false, None);
        prop_assert_eq!(writes, model.writes, "a settled job is not written");
    }
}
