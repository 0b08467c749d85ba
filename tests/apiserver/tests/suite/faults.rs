//! A job's life, with every fault that a server, a network or a manager's death can show: it ends as an undisturbed one does.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use di_api::{DIJob, DIJobStatus, EntryState, Phase, PlanEntry, ReplicaCounts};
use di_apiserver_tests::{
    Came, Fate, Job, Kubelet, Manager, Proxy, Space, Watches, eventually, exit,
};
use di_controller::Settings;
use futures::{StreamExt, TryStreamExt, future::join_all, stream};
use kube::{
    ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{
    sync::{Notify, OnceCell},
    task::JoinSet,
    time::sleep,
};

const JOB: &str = "job";
/// Lives at the same time.
const AT_ONCE: usize = 12;
/// How long faults go on that come again and again. What backs off from them for longer and longer goes on soon after.
const FAULTY: Duration = Duration::from_secs(4);

/// How a life ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    conditions: BTreeMap<String, String>,
    counts: BTreeMap<String, ReplicaCounts>,
    pods: BTreeMap<String, usize>,
    services: usize,
    plan: usize,
}

impl End {
    /// Whether only what the policy leaves is there, and counted.
    fn is_complete(&self) -> bool {
        let active: i32 = self.counts.values().map(|counts| counts.active).sum();
        self.services == 0
            && self.plan == 0
            && active == 0
            && self.pods.values().sum::<usize>() == 2
    }
}

/// What a life took.
#[derive(Clone, Debug)]
struct Life {
    end: End,
    /// Pods that were made, in order.
    pods: Vec<String>,
    came: Vec<Came>,
}

fn wanted_and_ready(status: &DIJobStatus, wanted: &str) -> bool {
    status.phase == Some(Phase::Running) && status.collectors_ready.as_deref() == Some(wanted)
}

/// One collector fails, and is replaced; then the coordinator succeeds.
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
    let end = eventually("all is as it stays", async || {
        let end = look(space).await;
        if is_over(&end) {
            Ok(end)
        } else {
            Err(format!("{end:?}"))
        }
    })
    .await;
    phases.check();
    end
}

async fn look(space: &Space) -> End {
    let status = space
        .jobs()
        .get(JOB)
        .await
        .unwrap()
        .status
        .unwrap_or_default();
    let mut pods = BTreeMap::new();
    for pod in space.pods_of(JOB).await.into_values() {
        let role = pod.labels()["replica-type"].clone();
        let phase = pod.status.unwrap_or_default().phase.unwrap_or_default();
        *pods.entry(format!("{role} {phase}")).or_default() += 1;
    }
    let conditions = status.conditions.iter();
    End {
        conditions: conditions
            .map(|c| {
                (
                    format!("{:?}", c.type_),
                    format!("{:?} {}", c.status, c.reason),
                )
            })
            .collect(),
        counts: status.replica_status,
        pods,
        services: space.services_of(JOB).await.len(),
        plan: status.plan.len(),
    }
}

/// The phases that a job shows, in order.
struct Phases {
    _watching: JoinSet<()>,
    regressed: Arc<AtomicBool>,
}

impl Phases {
    fn of(space: &Space) -> Self {
        let jobs = space.jobs();
        let regressed = Arc::new(AtomicBool::new(false));
        let seen = regressed.clone();
        let mut watching = JoinSet::new();
        watching.spawn(async move {
            let mut ended = false;
            let only = watcher::Config::default().fields(&format!("metadata.name={JOB}"));
            let jobs = watcher(jobs, only).default_backoff();
            let mut jobs = std::pin::pin!(jobs.applied_objects());
            while let Ok(Some(job)) = jobs.try_next().await {
                let job: DIJob = job;
                let is_over = job
                    .status
                    .and_then(|s| s.phase)
                    .is_some_and(Phase::is_terminal);
                if ended && !is_over {
                    seen.store(true, SeqCst);
                }
                ended |= is_over;
            }
        });
        Self {
            _watching: watching,
            regressed,
        }
    }

    fn check(&self) {
        assert!(!self.regressed.load(SeqCst), "it ended, and went on");
    }
}

/// A manager behind a proxy.
struct Managed {
    space: Space,
    proxy: Proxy,
    manager: Manager,
}

impl Managed {
    async fn start() -> Self {
        let space = Space::new().await;
        let upstream = space.server.client_of_manager("manager", &space.namespace);
        let proxy = Proxy::start(upstream).await;
        let manager = Self::manager(&proxy);
        Self {
            space,
            proxy,
            manager,
        }
    }

    fn manager(proxy: &Proxy) -> Manager {
        let settings = Settings {
            call_timeout: Duration::from_secs(2),
            ..Settings::default()
        };
        Manager::start_with(proxy.client(), settings)
    }

    /// Stops it, and looks at what it took.
    async fn took(self, end: End) -> Life {
        self.manager.stop().await;
        let made = self.space.writes().await.into_iter();
        let made = made.filter(|w| w.is("create", "pods") && w.code == 201);
        Life {
            end,
            pods: made.map(|write| write.name).collect(),
            came: self.proxy.came(),
        }
    }
}

static REFERENCE: OnceCell<Life> = OnceCell::const_new();

/// An undisturbed life.
async fn reference() -> &'static Life {
    let lived = REFERENCE.get_or_init(async || {
        let managed = Managed::start().await;
        let end = lead(&managed.space, End::is_complete).await;
        managed.took(end).await
    });
    lived.await
}

impl Life {
    /// A life under a rule.
    async fn under(rule: impl Fn(&Came) -> Fate + Send + Sync + 'static) -> Self {
        let managed = Managed::start().await;
        managed.proxy.rule(rule);
        let end = as_usual(&managed.space).await;
        managed.took(end).await
    }

    fn writes(&self) -> usize {
        self.came.iter().filter(|came| came.write > 0).count()
    }

    /// No pod too many or twice, and no request again and again.
    fn check(&self, what: &str, more: usize) {
        let reference = REFERENCE.get().unwrap();
        assert_eq!(self.pods.len(), reference.pods.len(), "{what}: {self:#?}");
        let names: BTreeSet<_> = self.pods.iter().collect();
        assert_eq!(self.pods.len(), names.len(), "{what}: {self:#?}");
        let most = reference.came.len() * 2 + more;
        assert!(self.came.len() <= most, "{what}: {self:#?}");
    }
}

/// A life that ends as the undisturbed one did.
async fn as_usual(space: &Space) -> End {
    let reference = reference().await;
    lead(space, |end| *end == reference.end).await
}

/// Each write meets each fate.
async fn each_write_meets(fates: &[Fate]) {
    let writes = reference().await.writes();
    let cases = fates
        .iter()
        .flat_map(|fate| (1..=writes).map(move |at| (at, *fate)));
    stream::iter(cases)
        .map(|(at, fate)| async move {
            let lived = Life::under(move |came| if came.write == at { fate } else { Fate::Served });
            lived.await.check(&format!("write {at}: {fate:?}"), 10);
        })
        .buffer_unordered(AT_ONCE)
        .collect::<()>()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_write_may_be_refused() {
    let codes = [409, 429, 500, 504].map(Fate::Refused);
    each_write_meets(&[&codes[..], &[Fate::Garbled]].concat()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_write_may_hang_or_its_answer_be_lost() {
    each_write_meets(&[Fate::Hung, Fate::Unanswered, Fate::Lost]).await;
}

/// A manager that dies at a write: before it reaches the server, or after. Another goes on.
async fn interrupted(at: usize, arrives: bool) -> Life {
    let mut managed = Managed::start().await;
    let reached = Arc::new(Notify::new());
    let notify = reached.clone();
    managed.proxy.rule(move |came| {
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
    let space = managed.space.clone();
    let mut living = std::pin::pin!(as_usual(&space));
    let ended = tokio::select! {
        () = reached.notified() => None,
        // It may be done with fewer writes than another.
        end = &mut living => Some(end),
    };
    managed.proxy.rule(|_| Fate::Served);
    let second = Managed::manager(&managed.proxy);
    std::mem::replace(&mut managed.manager, second).kill().await;
    let end = match ended {
        Some(end) => end,
        None => living.await,
    };
    managed.took(end).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_may_die_at_each_write() {
    let writes = reference().await.writes();
    let cases = [false, true]
        .into_iter()
        .flat_map(|arrives| (1..=writes).map(move |at| (at, arrives)));
    stream::iter(cases)
        .map(|(at, arrives)| async move {
            let lived = interrupted(at, arrives).await;
            lived.check(&format!("died at write {at}, which arrives: {arrives}"), 20);
        })
        .buffer_unordered(AT_ONCE)
        .collect::<()>()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quarter_of_all_requests_may_fail() {
    const FATES: [Fate; 6] = [
        Fate::Refused(409),
        Fate::Refused(500),
        Fate::Refused(503),
        Fate::Garbled,
        Fate::Unanswered,
        Fate::Lost,
    ];
    let began = Instant::now();
    let fate = move |came: &Came| match FATES.get(rand::random_range(0..4 * FATES.len())) {
        _ if began.elapsed() > FAULTY => Fate::Served,
        Some(Fate::Refused(409)) if came.write == 0 => Fate::Refused(500),
        Some(Fate::Unanswered) if came.write == 0 => Fate::Lost,
        Some(fate) => *fate,
        None => Fate::Served,
    };
    for lived in join_all((0..AT_ONCE).map(|_| Life::under(fate))).await {
        lived.check("a quarter", 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_may_be_withdrawn_and_given_back() {
    let resources = ["/pods", "/services", "/status"];
    let lives = resources.map(|resource| async move {
        let began = Instant::now();
        let withdrawn = move |came: &Came| {
            came.write > 0 && came.target.contains(resource) && began.elapsed() < FAULTY
        };
        let lived = Life::under(move |came| {
            if withdrawn(came) {
                Fate::Refused(403)
            } else {
                Fate::Served
            }
        });
        lived.await.check(resource, 40);
    });
    join_all(lives).await;
}

/// A life while this is done to its watches.
async fn watched(what: &str, disturb: impl AsyncFn(&Proxy)) {
    let managed = Managed::start().await;
    let disturbed = async {
        disturb(&managed.proxy).await;
        std::future::pending::<()>().await;
    };
    let end = tokio::select! {
        end = as_usual(&managed.space) => end,
        () = disturbed => unreachable!("it is pending"),
    };
    managed.took(end).await.check(what, 300);
}

/// Now and then, for a moment.
async fn now_and_then(proxy: &Proxy, what: Watches) {
    let began = Instant::now();
    while began.elapsed() < FAULTY {
        proxy.watches(what);
        sleep(Duration::from_millis(50)).await;
        proxy.watches(Watches::Flow);
        sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_may_break_in_every_way() {
    tokio::join!(
        watched("cut", async |proxy| now_and_then(proxy, Watches::Cut).await),
        watched("expired", async |proxy| now_and_then(
            proxy,
            Watches::Expired
        )
        .await),
        watched("frozen", async |proxy| now_and_then(proxy, Watches::Frozen)
            .await),
        watched("twice", async |proxy| proxy.watches(Watches::Twice)),
        watched("garbled", async |proxy| {
            let garbled = |came: &Came| came.is_watch() && rand::random();
            proxy.rule(move |came| {
                if garbled(came) {
                    Fate::Garbled
                } else {
                    Fate::Served
                }
            });
            now_and_then(proxy, Watches::Cut).await;
            proxy.rule(|_| Fate::Served);
        }),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_may_be_silent_for_a_minute() {
    let managed = Managed::start().await;
    managed.space.create(&Job::new("before", 2)).await;
    let _kubelet = Kubelet::running(&managed.space);
    managed.space.until_settled("before").await;
    managed.proxy.watches(Watches::Frozen);
    exit(&managed.space.pods(), "before-coordinator", 0).await;
    sleep(Duration::from_secs(60)).await;
    managed.proxy.watches(Watches::Flow);
    managed.space.until_phase("before", Phase::Succeeded).await;
    let end = as_usual(&managed.space).await;
    let lived = managed.took(end).await;
    assert_eq!(lived.pods.len(), reference().await.pods.len() + 3);
}
