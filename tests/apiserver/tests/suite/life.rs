//! The life of a job, to be disturbed: what it takes, how it ends, and that it ends as an undisturbed one does.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use di_api::{DIJobStatus, EntryState, Phase, PlanEntry, ReplicaCounts};
use di_apiserver_tests::{Came, Fate, Job, Kubelet, Manager, Proxy, Space, eventually, exit};
use di_controller::Settings;
use kube::ResourceExt;
use tokio::sync::{Notify, OnceCell};

use crate::{course::Course, phases::Phases, victim::Victim};

pub(crate) const JOB: &str = "job";
/// Lives at the same time.
pub(crate) const AT_ONCE: usize = 12;

/// How a life ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    phase: Option<Phase>,
    reason: Option<String>,
    restarts: i32,
    generation: Option<i64>,
    /// Collectors and learners.
    ready: [Option<String>; 2],
    /// Whether it is said when it started, and when it ended.
    timed: [bool; 2],
    conditions: BTreeMap<String, String>,
    counts: BTreeMap<String, ReplicaCounts>,
    pods: BTreeMap<String, usize>,
    services: usize,
    plan: usize,
}

impl End {
    /// Whether only what the policy leaves is there, and counted: so many pods that have ended.
    pub(crate) fn is_complete(&self, left: i32) -> bool {
        let counts = self.counts.values();
        let active: i32 = counts.clone().map(|n| n.active + n.pending).sum();
        let ended: i32 = counts.map(|n| n.succeeded + n.failed).sum();
        // What delayed it may be told until the next look.
        let replicas = self.conditions.get("\"ReplicasReady\"");
        let told = replicas.zip(self.reason.as_ref());
        self.services == 0
            && self.plan == 0
            && told.is_some_and(|(replicas, reason)| replicas.contains(reason))
            && (active, ended) == (0, left)
            && i32::try_from(self.pods.values().sum::<usize>()) == Ok(left)
    }
}

/// What a life took.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) end: End,
    /// Pods that were made, in order.
    pub(crate) pods: Vec<String>,
    /// Services that were.
    services: Vec<String>,
    pub(crate) came: Vec<Came>,
}

pub(crate) fn wanted_and_ready(status: &DIJobStatus, wanted: &str) -> bool {
    status.phase == Some(Phase::Running) && status.collectors_ready.as_deref() == Some(wanted)
}

/// One collector fails, and is replaced; then the coordinator succeeds.
pub(crate) struct Usual;

impl Course for Usual {
    const LEFT: i32 = 2;

    fn undisturbed() -> &'static OnceCell<Life> {
        static UNDISTURBED: OnceCell<Life> = OnceCell::const_new();
        &UNDISTURBED
    }

    async fn lead(space: &Space, is_over: impl Fn(&End) -> bool) -> End {
        let _kubelet = Kubelet::running(space);
        let phases = Phases::of(space);
        space.create(&Job::new(JOB, 2)).await;
        let ready = |status: &DIJobStatus| wanted_and_ready(status, "2/2");
        let status = space.until(JOB, "two collectors", ready).await;
        let failed = &status.plan[0].name;
        exit(&space.pods(), failed, 1).await;
        let replaced = |status: &DIJobStatus| {
            let gone = |e: &PlanEntry| e.name == *failed && e.state == EntryState::Replaced;
            status.plan.iter().any(gone) && ready(status)
        };
        space.until(JOB, "one is replaced", replaced).await;
        exit(&space.pods(), "job-coordinator", 0).await;
        space.until_phase(JOB, Phase::Succeeded).await;
        let end = comes_to(space, is_over).await;
        phases.check().await;
        end
    }
}

pub(crate) async fn comes_to(space: &Space, is_over: impl Fn(&End) -> bool) -> End {
    eventually("all is as it stays", async || {
        let end = look(space).await;
        if is_over(&end) {
            Ok(end)
        } else {
            Err(format!("{end:?}"))
        }
    })
    .await
}

async fn look(space: &Space) -> End {
    let status = space.until(JOB, "it is there", |_| true).await;
    let mut pods = BTreeMap::new();
    for pod in space.pods_of(JOB).await.into_values() {
        let role = pod.labels()["replica-type"].clone();
        let phase = pod.status.unwrap_or_default().phase.unwrap_or_default();
        *pods.entry(format!("{role} {phase}")).or_default() += 1;
    }
    let conditions = status.conditions.iter();
    End {
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

/// Settings by which faults do not take long.
pub(crate) fn settings() -> Settings {
    Settings {
        call_timeout: Duration::from_secs(2),
        ..Settings::default()
    }
}

/// A manager behind a proxy.
pub(crate) struct Managed {
    pub(crate) space: Space,
    pub(crate) proxy: Proxy,
    pub(crate) manager: Manager,
}

impl Managed {
    pub(crate) async fn start() -> Self {
        Self::start_in(Space::new().await, settings())
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

    /// Ends the manager in the middle of whatever it does; another goes on.
    pub(crate) async fn exchange(&mut self) {
        let next = Manager::start_with(self.proxy.client(), settings());
        std::mem::replace(&mut self.manager, next).kill().await;
    }

    /// Stops it, and looks at what it took.
    pub(crate) async fn took(self, end: End) -> Life {
        self.manager.stop().await;
        Life::of(&self.space, end, self.proxy.came()).await
    }

    /// The manager is killed at a write of a life: before that reaches the server, or after. Another goes on. Returns whether it came to that,
    /// too.
    pub(crate) async fn interrupted(
        self,
        at: usize,
        arrives: bool,
        life: impl Future<Output = End>,
    ) -> (Life, bool) {
        let Self {
            space,
            proxy,
            manager,
        } = self;
        manager.kill().await;
        let victim = Victim::start(proxy.url(), &settings());
        let reached = Arc::new(Notify::new());
        let notify = reached.clone();
        proxy.rule(move |came| {
            if came.write < at {
                return Fate::Served;
            }
            notify.notify_one();
            if came.write == at && arrives {
                Fate::Unanswered
            } else {
                Fate::Hung
            }
        });
        let mut life = pin!(life);
        let ended = tokio::select! {
            () = reached.notified() => None,
            // It may be done with fewer writes than another.
            end = &mut life => Some(end),
        };
        proxy.rule(|_| Fate::Served);
        drop(victim);
        let next = Self {
            space,
            manager: Manager::start_with(proxy.client(), settings()),
            proxy,
        };
        let reached = ended.is_none();
        let end = match ended {
            Some(end) => end,
            None => life.await,
        };
        (next.took(end).await, reached)
    }
}

/// An undisturbed life.
pub(crate) async fn reference() -> &'static Life {
    Usual::reference().await
}

impl Life {
    pub(crate) async fn of(space: &Space, end: End, came: Vec<Came>) -> Self {
        let writes = space.writes().await;
        let made = |resource| {
            let made = writes
                .iter()
                .filter(|w| w.concerns(JOB) && w.is("create", resource) && w.code == 201);
            made.map(|write| write.name.clone()).collect()
        };
        Self {
            end,
            pods: made("pods"),
            services: made("services"),
            came,
        }
    }

    pub(crate) fn writes(&self) -> usize {
        self.came.iter().filter(|came| came.write > 0).count()
    }

    /// No pod and no service too many or twice, and no request again and again.
    pub(crate) fn check(&self, what: &str, more: usize) {
        self.check_against(Usual::undisturbed().get().unwrap(), what, more);
    }

    /// The same of another kind of life.
    pub(crate) fn check_against(&self, reference: &Self, what: &str, more: usize) {
        assert_eq!(
            times(&self.pods),
            times(&reference.pods),
            "{what}: {self:#?}"
        );
        // A replica that is lost before its service could be made never gets one.
        let (made, usual) = (&self.services, &reference.services);
        assert!(made.len() <= usual.len(), "{what}: {self:#?}");
        let most = |made| times(made).into_iter().max();
        assert!(most(made) <= most(usual), "{what}: {self:#?}");
        self.check_requests(reference, what, more);
    }

    /// The same where the audit log may lack what was written last before the server was killed.
    pub(crate) fn check_within(&self, what: &str, more: usize) {
        let reference = Usual::undisturbed().get().unwrap();
        for (made, most) in [
            (&self.pods, reference.pods.len()),
            (&self.services, reference.services.len()),
        ] {
            let names: BTreeSet<_> = made.iter().collect();
            assert_eq!(made.len(), names.len(), "{what}: {self:#?}");
            assert!(made.len() <= most, "{what}: {self:#?}");
        }
        self.check_requests(reference, what, more);
    }

    fn check_requests(&self, reference: &Self, what: &str, more: usize) {
        // A server that has much to do may answer too late again and again; who waits for it asks once a second.
        let times = self.came.iter().map(|came| came.at);
        let lasted = times.clone().max().zip(times.min());
        let lasted = lasted.map_or(0, |(last, first)| last.duration_since(first).as_secs());
        let most = reference.came.len() * 2 + more + usize::try_from(lasted).unwrap();
        assert!(self.came.len() <= most, "{what}: {self:#?}");
        check_pace(what, &self.came);
    }
}

/// What is asked for again and again: no watch is opened and no kind listed more than once a second, whatever became of it; of two managers,
/// each asks for itself.
pub(crate) fn check_pace(what: &str, came: &[Came]) {
    // One more at the beginning, and one that was late to arrive.
    const MORE: usize = 3;
    let mut times = BTreeMap::<_, Vec<_>>::new();
    for came in came.iter().filter(|came| came.is_watch() || came.is_list()) {
        let asks = if came.is_watch() { "watch" } else { "list" };
        times.entry((asks, came.path())).or_default().push(came.at);
    }
    for (asked, times) in times {
        for (first, from) in times.iter().enumerate() {
            for (last, to) in times.iter().enumerate().skip(first + MORE) {
                let seconds = (*to - *from).as_secs();
                let most = usize::try_from(seconds).unwrap() + MORE;
                let often = last - first + 1;
                assert!(often <= most, "{what}: {asked:?}: {often} in {seconds} s");
            }
        }
    }
}

/// How often names were made, whichever they are.
fn times(made: &[String]) -> Vec<usize> {
    let mut times: BTreeMap<&String, usize> = BTreeMap::new();
    for name in made {
        *times.entry(name).or_default() += 1;
    }
    let mut times: Vec<_> = times.into_values().collect();
    times.sort_unstable();
    times
}

/// A life that ends as the undisturbed one did.
pub(crate) async fn as_usual(space: &Space) -> End {
    Usual::as_usual(space).await
}

/// Waits until all is again as it was at the end of the undisturbed one.
pub(crate) async fn ended_as_usual(space: &Space) -> End {
    let reference = reference().await;
    comes_to(space, |end| *end == reference.end).await
}
