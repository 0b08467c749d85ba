//! A job run that tests disturb: the scenario, its final state, and the checks against a run
//! without faults.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use di_api::{DIJobStatus, EntryState, Phase, PlanEntry, ReplicaCounts};
use di_apiserver_tests::{
    Job, Kubelet, Manager, Proxy, ProxyAction, RecordedRequest, Space, eventually, exit,
};
use di_controller::Settings;
use kube::ResourceExt;
use tokio::sync::{Notify, OnceCell};

use crate::{
    faults::manager_process::ManagerProcess, faults::phase_monitor::PhaseMonitor,
    faults::scenario::Scenario,
};

pub(crate) const JOB: &str = "job";
/// Number of runs at the same time.
pub(crate) const AT_ONCE: usize = 12;

/// The final state of a job and its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FinalState {
    phase: Option<Phase>,
    reason: Option<String>,
    restarts: i32,
    generation: Option<i64>,
    /// Collectors and learners.
    ready: [Option<String>; 2],
    /// Whether the start and completion times are set.
    timed: [bool; 2],
    conditions: BTreeMap<String, String>,
    counts: BTreeMap<String, ReplicaCounts>,
    pods: BTreeMap<String, usize>,
    services: usize,
    plan: usize,
}

impl FinalState {
    /// Whether exactly `left` ended pods remain and the status counts them.
    pub(crate) fn is_complete(&self, left: i32) -> bool {
        let counts = self.counts.values();
        let active: i32 = counts.clone().map(|n| n.active + n.pending).sum();
        let ended: i32 = counts.map(|n| n.succeeded + n.failed).sum();
        // A reason of a past delay may remain until the next reconcile.
        let replicas = self.conditions.get("\"ReplicasReady\"");
        let reported = replicas.zip(self.reason.as_ref());
        self.services == 0
            && self.plan == 0
            && reported.is_some_and(|(replicas, reason)| replicas.contains(reason))
            && (active, ended) == (0, left)
            && i32::try_from(self.pods.values().sum::<usize>()) == Ok(left)
    }
}

/// Record of one job run.
#[derive(Clone, Debug)]
pub(crate) struct JobRun {
    pub(crate) end: FinalState,
    /// Pods that were created, in order.
    pub(crate) pods: Vec<String>,
    /// Services that were created, in order.
    services: Vec<String>,
    pub(crate) requests: Vec<RecordedRequest>,
}

pub(crate) fn is_running_with(status: &DIJobStatus, wanted: &str) -> bool {
    status.phase == Some(Phase::Running) && status.collectors_ready.as_deref() == Some(wanted)
}

/// A job with one failed and replaced collector, whose coordinator then succeeds.
pub(crate) struct ReplacementScenario;

impl Scenario for ReplacementScenario {
    const LEFT: i32 = 2;

    fn reference_cell() -> &'static OnceCell<JobRun> {
        static REFERENCE: OnceCell<JobRun> = OnceCell::const_new();
        &REFERENCE
    }

    async fn drive(space: &Space, is_over: impl Fn(&FinalState) -> bool) -> FinalState {
        let _kubelet = Kubelet::running(space);
        let phases = PhaseMonitor::start(space);
        space.create(&Job::new(JOB, 2)).await;
        let ready = |status: &DIJobStatus| is_running_with(status, "2/2");
        let status = space.until(JOB, "two collectors", ready).await;
        let failed = &status.plan[0].name;
        exit(&space.pods(), failed, 1).await;
        let replaced = |status: &DIJobStatus| {
            let gone = |e: &PlanEntry| e.name == *failed && e.state == EntryState::Replaced;
            status.plan.iter().any(gone) && ready(status)
        };
        space.until(JOB, "a collector is replaced", replaced).await;
        exit(&space.pods(), "job-coordinator", 0).await;
        space.until_phase(JOB, Phase::Succeeded).await;
        let end = wait_for_end(space, is_over).await;
        phases.check().await;
        end
    }
}

pub(crate) async fn wait_for_end(
    space: &Space,
    is_over: impl Fn(&FinalState) -> bool,
) -> FinalState {
    eventually("all is as it stays", async || {
        let end = observe(space).await;
        if is_over(&end) {
            Ok(end)
        } else {
            Err(format!("{end:?}"))
        }
    })
    .await
}

async fn observe(space: &Space) -> FinalState {
    let status = space.until(JOB, "the job exists", |_| true).await;
    let mut pods = BTreeMap::new();
    for pod in space.pods_of(JOB).await.into_values() {
        let role = pod.labels()["replica-type"].clone();
        let phase = pod.status.unwrap_or_default().phase.unwrap_or_default();
        *pods.entry(format!("{role} {phase}")).or_default() += 1;
    }
    let conditions = status.conditions.iter();
    FinalState {
        phase: status.phase,
        reason: status.reason,
        restarts: status.restarts,
        generation: status.observed_generation,
        ready: [status.collectors_ready, status.learners_ready],
        timed: [status.start_time, status.completion_time].map(|time| time.is_some()),
        conditions: conditions
            .map(|c| {
                (
                    format!("{:?}", c.type_),
                    format!("{} {} {:?}", c.status, c.reason, c.observed_generation),
                )
            })
            .collect(),
        counts: status.replica_status,
        pods,
        services: space.services_of(JOB).await.len(),
        plan: status.plan.len(),
    }
}

/// Settings with short timeouts, so that faults do not take long.
pub(crate) fn short_timeout_settings() -> Settings {
    Settings {
        call_timeout: Duration::from_secs(2),
        ..Settings::default()
    }
}

/// A manager behind a fault proxy.
pub(crate) struct ProxiedManager {
    pub(crate) space: Space,
    pub(crate) proxy: Proxy,
    pub(crate) manager: Manager,
}

impl ProxiedManager {
    pub(crate) async fn start() -> Self {
        Self::start_in(Space::new().await, short_timeout_settings())
    }

    pub(crate) fn start_in(space: Space, settings: Settings) -> Self {
        let upstream = space.server.client_of_manager("manager", &space.namespace);
        let proxy = Proxy::start(upstream);
        let manager = Manager::start_with(proxy.client(), settings);
        Self {
            space,
            proxy,
            manager,
        }
    }

    /// Replaces the manager by a new one without a graceful stop.
    pub(crate) async fn replace_manager(&mut self) {
        let next = Manager::start_with(self.proxy.client(), short_timeout_settings());
        std::mem::replace(&mut self.manager, next).kill().await;
    }

    /// Stops the manager and records the run.
    pub(crate) async fn stop_and_record(self, end: FinalState) -> JobRun {
        self.manager.stop().await;
        JobRun::collect(&self.space, end, self.proxy.requests()).await
    }

    /// Kills the manager at this write, before or after it reaches the API server, and starts
    /// another one. Also returns whether the run had this write.
    pub(crate) async fn kill_at_write(
        self,
        at: usize,
        arrives: bool,
        life: impl Future<Output = FinalState>,
    ) -> (JobRun, bool) {
        let Self {
            space,
            proxy,
            manager,
        } = self;
        manager.kill().await;
        let process = ManagerProcess::start(proxy.url(), &short_timeout_settings());
        let reached = Arc::new(Notify::new());
        let notify = reached.clone();
        proxy.set_rule(move |request| {
            if request.write < at {
                return ProxyAction::Served;
            }
            notify.notify_one();
            if request.write == at && arrives {
                ProxyAction::Unanswered
            } else {
                ProxyAction::Hung
            }
        });
        let mut life = pin!(life);
        let ended = tokio::select! {
            () = reached.notified() => None,
            // A run may complete with fewer writes than the reference.
            end = &mut life => Some(end),
        };
        proxy.set_rule(|_| ProxyAction::Served);
        drop(process);
        let next = Self {
            space,
            manager: Manager::start_with(proxy.client(), short_timeout_settings()),
            proxy,
        };
        let reached = ended.is_none();
        let end = match ended {
            Some(end) => end,
            None => life.await,
        };
        (next.stop_and_record(end).await, reached)
    }
}

/// The run without faults.
pub(crate) async fn reference_run() -> &'static JobRun {
    ReplacementScenario::reference_run().await
}

impl JobRun {
    pub(crate) async fn collect(
        space: &Space,
        end: FinalState,
        requests: Vec<RecordedRequest>,
    ) -> Self {
        let writes = space.writes().await;
        let made = |resource| {
            let made = writes
                .iter()
                .filter(|w| w.concerns_job(JOB) && w.is_call("create", resource) && w.code == 201);
            made.map(|write| write.name.clone()).collect()
        };
        Self {
            end,
            pods: made("pods"),
            services: made("services"),
            requests,
        }
    }

    pub(crate) fn writes(&self) -> usize {
        self.requests
            .iter()
            .filter(|request| request.write > 0)
            .count()
    }

    /// Checks that no pod or service was created in excess or twice, and that the number of
    /// requests is bounded.
    pub(crate) fn check(&self, description: &str, more: usize) {
        self.check_against(
            ReplacementScenario::reference_cell().get().unwrap(),
            description,
            more,
        );
    }

    /// The same as `check` for any scenario.
    pub(crate) fn check_against(&self, reference: &Self, description: &str, more: usize) {
        assert_eq!(
            create_counts(&self.pods),
            create_counts(&reference.pods),
            "{description}: {self:#?}"
        );
        // A replica that fails before its service is created never gets one.
        let (made, usual) = (&self.services, &reference.services);
        assert!(made.len() <= usual.len(), "{description}: {self:#?}");
        let most = |made| create_counts(made).into_iter().max();
        assert!(most(made) <= most(usual), "{description}: {self:#?}");
        self.check_requests(reference, description, more);
    }

    /// A weaker check, for a server whose audit log may lack the last writes before it was killed.
    pub(crate) fn check_bounds(&self, description: &str, more: usize) {
        let reference = ReplacementScenario::reference_cell().get().unwrap();
        for (made, most) in [
            (&self.pods, reference.pods.len()),
            (&self.services, reference.services.len()),
        ] {
            let names: BTreeSet<_> = made.iter().collect();
            assert_eq!(made.len(), names.len(), "{description}: {self:#?}");
            assert!(made.len() <= most, "{description}: {self:#?}");
        }
        self.check_requests(reference, description, more);
    }

    fn check_requests(&self, reference: &Self, description: &str, more: usize) {
        // A slow server may cause one timeout after another; then the manager sends one request a
        // second.
        let times = self.requests.iter().map(|request| request.at);
        let lasted = times.clone().max().zip(times.min());
        let lasted = lasted.map_or(0, |(last, first)| last.duration_since(first).as_secs());
        let most = reference.requests.len() * 2 + more + usize::try_from(lasted).unwrap();
        assert!(self.requests.len() <= most, "{description}: {self:#?}");
        check_watch_rate(description, &self.requests);
    }
}

/// Checks that no watch is opened and no kind is listed more than once a second. Two managers count
/// separately.
pub(crate) fn check_watch_rate(description: &str, requests: &[RecordedRequest]) {
    // Allows one more request at the start and one that arrived late.
    const MORE: usize = 3;
    let mut times = BTreeMap::<_, Vec<_>>::new();
    for request in requests
        .iter()
        .filter(|request| request.is_watch() || request.is_list())
    {
        let asks = if request.is_watch() { "watch" } else { "list" };
        times
            .entry((asks, request.path()))
            .or_default()
            .push(request.at);
    }
    for (asked, times) in times {
        for (first, from) in times.iter().enumerate() {
            for (last, to) in times.iter().enumerate().skip(first + MORE) {
                let seconds = (*to - *from).as_secs();
                let most = usize::try_from(seconds).unwrap() + MORE;
                let often = last - first + 1;
                assert!(
                    often <= most,
                    "{description}: {asked:?}: {often} in {seconds} s"
                );
            }
        }
    }
}

/// Returns how often each name was created, sorted.
fn create_counts(made: &[String]) -> Vec<usize> {
    let mut times: BTreeMap<&String, usize> = BTreeMap::new();
    for name in made {
        *times.entry(name).or_default() += 1;
    }
    let mut times: Vec<_> = times.into_values().collect();
    times.sort_unstable();
    times
}

/// Runs the usual scenario until it ends like the reference.
pub(crate) async fn complete_like_reference(space: &Space) -> FinalState {
    ReplacementScenario::complete_like_reference(space).await
}

/// Waits until the job has the final state of the reference again.
pub(crate) async fn wait_for_reference_end(space: &Space) -> FinalState {
    let reference = reference_run().await;
    wait_for_end(space, |end| *end == reference.end).await
}
