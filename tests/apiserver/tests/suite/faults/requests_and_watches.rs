//! Jobs under faults of the API server, the network and the manager process: they end as without
//! faults.

use std::{
    collections::BTreeSet,
    sync::Mutex,
    time::{Duration, Instant},
};

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{
    Endpoint, Job, Kubelet, Proxy, ProxyAction, RecordedRequest, WatchMode, eventually, exit,
};
use futures::future::join_all;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    faults::job_run::{
        AT_ONCE, JOB, ProxiedManager, ReplacementScenario, check_watch_rate,
        complete_like_reference, reference_run,
    },
    faults::phase_monitor::PhaseMonitor,
    faults::scenario::{Scenario, inject_at_each_write, kill_at_the_end, kill_at_writes},
};

/// How long repeated faults last. Backoff must recover soon after.
const FAULTY: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread")]
async fn rejected_write_reaches_same_end() {
    let codes = [409, 429, 500, 504].map(ProxyAction::Rejected);
    inject_at_each_write::<ReplacementScenario>(
        &[&codes[..], &[ProxyAction::Garbled]].concat(),
        AT_ONCE,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_or_unanswered_write_reaches_same_end() {
    inject_at_each_write::<ReplacementScenario>(
        &[
            ProxyAction::Hung,
            ProxyAction::Unanswered,
            ProxyAction::Lost,
        ],
        AT_ONCE,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_killed_at_any_write_reaches_same_end() {
    let writes = reference_run().await.writes();
    kill_at_writes::<ReplacementScenario>(1..=writes, AT_ONCE, 20).await;
    kill_at_the_end::<ReplacementScenario>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quarter_of_requests_failing_reaches_same_end() {
    const FATES: [ProxyAction; 6] = [
        ProxyAction::Rejected(409),
        ProxyAction::Rejected(500),
        ProxyAction::Rejected(503),
        ProxyAction::Garbled,
        ProxyAction::Unanswered,
        ProxyAction::Lost,
    ];
    let began = Instant::now();
    let fate =
        move |request: &RecordedRequest| match FATES.get(rand::random_range(0..4 * FATES.len())) {
            _ if began.elapsed() > FAULTY => ProxyAction::Served,
            Some(ProxyAction::Rejected(409)) if request.write == 0 => ProxyAction::Rejected(500),
            Some(ProxyAction::Unanswered) if request.write == 0 => ProxyAction::Lost,
            Some(fate) => *fate,
            None => ProxyAction::Served,
        };
    for lived in join_all((0..AT_ONCE).map(|_| ReplacementScenario::run_with_rule(fate))).await {
        lived.check("a quarter", 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn temporarily_revoked_permission_reaches_same_end() {
    let resources = ["/pods", "/services", "/status"];
    let lives = resources.map(|resource| async move {
        let began = Instant::now();
        let withdrawn = move |request: &RecordedRequest| {
            request.write > 0 && request.target.contains(resource) && began.elapsed() < FAULTY
        };
        let lived = ReplacementScenario::run_with_rule(move |request| {
            if withdrawn(request) {
                ProxyAction::Rejected(403)
            } else {
                ProxyAction::Served
            }
        });
        lived.await.check(resource, 40);
    });
    join_all(lives).await;
}

/// Runs a job while this disturbs its watches.
async fn run_with_watches(description: &str, disturb: impl AsyncFn(&Proxy)) {
    let managed = ProxiedManager::start().await;
    let disturbed = async {
        disturb(&managed.proxy).await;
        std::future::pending::<()>().await;
    };
    let end = tokio::select! {
        end = complete_like_reference(&managed.space) => end,
        () = disturbed => unreachable!("it is pending"),
    };
    managed.stop_and_record(end).await.check(description, 300);
}

/// Applies the mode repeatedly for a short time.
async fn toggle_watches(proxy: &Proxy, mode: WatchMode) {
    let began = Instant::now();
    while began.elapsed() < FAULTY {
        proxy.set_watches(mode);
        sleep(Duration::from_millis(50)).await;
        proxy.set_watches(WatchMode::Flow);
        sleep(Duration::from_millis(300)).await;
    }
}

/// Watches end repeatedly, and half of the new ones are rejected.
async fn reject_watches_sometimes(fate: ProxyAction) {
    run_with_watches(&format!("{fate:?}"), async |proxy| {
        let refused = |request: &RecordedRequest| request.is_watch() && rand::random();
        proxy.set_rule(move |request| {
            if refused(request) {
                fate
            } else {
                ProxyAction::Served
            }
        });
        toggle_watches(proxy, WatchMode::Cut).await;
        proxy.set_rule(|_| ProxyAction::Served);
    })
    .await;
}

/// The watches of one kind lag or end for long, while the others flow.
async fn break_watches_of(kind: &'static str, mode: WatchMode) {
    run_with_watches(&format!("{kind} {mode:?}"), async |proxy| {
        let began = Instant::now();
        while began.elapsed() < FAULTY {
            proxy.set_watches_of(kind, mode);
            sleep(Duration::from_millis(1500)).await;
            proxy.set_watches(WatchMode::Flow);
            sleep(Duration::from_millis(300)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_watches_of_one_kind_reach_same_end() {
    let kinds = ["pods", "services", "dijobs"];
    let lives = kinds.into_iter().flat_map(|kind| {
        let ways = [WatchMode::Frozen, WatchMode::Cut, WatchMode::Expired];
        ways.map(|mode| break_watches_of(kind, mode))
    });
    join_all(lives).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_watches_reach_same_end() {
    tokio::join!(
        run_with_watches("cut", async |proxy| toggle_watches(proxy, WatchMode::Cut)
            .await),
        run_with_watches("expired", async |proxy| toggle_watches(
            proxy,
            WatchMode::Expired
        )
        .await),
        run_with_watches("frozen", async |proxy| toggle_watches(
            proxy,
            WatchMode::Frozen
        )
        .await),
        run_with_watches("twice", async |proxy| proxy.set_watches(WatchMode::Twice)),
        reject_watches_sometimes(ProxyAction::Garbled),
        reject_watches_sometimes(ProxyAction::Indented(403)),
        reject_watches_sometimes(ProxyAction::Indented(429)),
        reject_watches_sometimes(ProxyAction::Indented(500)),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_closed_at_once_are_reopened_at_limited_rate() {
    let managed = ProxiedManager::start().await;
    let endpoint = Proxy::start(managed.space.client.clone());
    let settings = di_replicas::Settings::default();
    let _endpoint = Endpoint::start_with_client(&managed.space, endpoint.client(), settings).await;
    let proxies = [&managed.proxy, &endpoint];
    for proxy in proxies {
        proxy.set_watches(WatchMode::Cut);
    }
    for proxy in proxies {
        eventually("the client opens a watch", async || {
            let watches = proxy.requests().iter().any(RecordedRequest::is_watch);
            watches.then_some(()).ok_or_else(String::new)
        })
        .await;
    }
    sleep(FAULTY).await;
    for proxy in proxies {
        check_watch_rate("cut", &proxy.requests());
        proxy.set_watches(WatchMode::Flow);
    }
    let end = complete_like_reference(&managed.space).await;
    managed.stop_and_record(end).await.check("cut", 40);
}

/// Runs a job that ends while its watches are silent, and then the usual scenario.
async fn run_with_silent_watches(
    description: &str,
    silence: WatchMode,
    wait: impl AsyncFn(&ProxiedManager),
) {
    let managed = ProxiedManager::start().await;
    let phases = PhaseMonitor::start(&managed.space);
    managed.space.create(&Job::new("before", 2)).await;
    let kubelet = Kubelet::running(&managed.space);
    managed.space.until_settled("before").await;
    // The scenario starts its own kubelet for all pods.
    drop(kubelet);
    managed.proxy.set_watches(silence);
    exit(&managed.space.pods(), "before-coordinator", 0).await;
    wait(&managed).await;
    managed.space.until_phase("before", Phase::Succeeded).await;
    let end = complete_like_reference(&managed.space).await;
    phases.check().await;
    let space = managed.space.clone();
    // Allow for the requests of the first job.
    managed.stop_and_record(end).await.check(description, 100);
    let writes = space.writes_of("manager").await.into_iter();
    let made =
        writes.filter(|w| w.concerns_job("before") && w.is_call("create", "pods") && w.code == 201);
    assert_eq!(made.count(), 3, "{description}");
}

/// No watch delivers an event for one minute.
async fn silence_watches_for_a_minute() {
    run_with_silent_watches("a minute", WatchMode::Frozen, async |managed| {
        sleep(Duration::from_secs(60)).await;
        managed.proxy.set_watches(WatchMode::Flow);
    })
    .await;
}

/// The open watches never deliver another event.
async fn silence_watches_forever() {
    run_with_silent_watches("for ever", WatchMode::Forgotten, async |managed| {
        // An API server ends them after 60 s; the manager closes a silent watch soon after that.
        sleep(Duration::from_secs(30)).await;
        let unheard = managed
            .space
            .until("before", "the job exists", |_| true)
            .await;
        assert_eq!(unheard.phase, Some(Phase::Running));
    })
    .await;
}

/// The pod watch delivers nothing from before the first create until the pending writes expire.
/// Then the manager must read the pods live.
async fn silence_pod_watch_for_a_minute() {
    let managed = ProxiedManager::start().await;
    let space = &managed.space;
    managed.proxy.set_watches_of("pods", WatchMode::Frozen);
    let unseen = async {
        let made = |s: &DIJobStatus| {
            let all = s.plan.iter().all(|entry| entry.uid.is_some());
            s.plan.len() == 2 && all
        };
        space.until(JOB, "all is made", made).await;
        sleep(Duration::from_secs(61)).await;
        // This change triggers a reconcile.
        let touch = Patch::Merge(json!({"metadata": {"annotations": {"looked": "at"}}}));
        let params = PatchParams::default();
        space.jobs().patch(JOB, &params, &touch).await.unwrap();
        let runs = |s: &DIJobStatus| s.phase == Some(Phase::Running);
        space.until(JOB, "the job is running", runs).await;
        managed.proxy.set_watches(WatchMode::Flow);
    };
    let (end, ()) = tokio::join!(complete_like_reference(space), unseen);
    managed.stop_and_record(end).await.check("pods unseen", 100);
}

/// The first list and the first watch of each kind are not answered.
async fn hang_first_lists_and_watches() {
    // Both the lists that fill the caches and the watches that follow.
    let lives = [RecordedRequest::is_list, RecordedRequest::is_watch].map(|asks| async move {
        let seen = Mutex::new(BTreeSet::new());
        let lived = ReplacementScenario::run_with_rule(move |request| {
            let first = || seen.lock().unwrap().insert(request.path().to_owned());
            if asks(request) && first() {
                ProxyAction::Hung
            } else {
                ProxyAction::Served
            }
        });
        lived.await.check("unanswered at first", 40);
    });
    join_all(lives).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_watches_reach_same_end() {
    tokio::join!(
        silence_watches_for_a_minute(),
        silence_watches_forever(),
        silence_pod_watch_for_a_minute(),
        hang_first_lists_and_watches()
    );
}
