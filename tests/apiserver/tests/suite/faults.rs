//! A job's life, with every fault that a server, a network or a manager's death can show: it ends as an undisturbed one does.

use std::time::{Duration, Instant};

use di_api::Phase;
use di_apiserver_tests::{Came, Endpoint, Fate, Job, Kubelet, Proxy, Watches, exit};
use futures::{StreamExt, future::join_all, stream};
use tokio::time::sleep;

use crate::life::{AT_ONCE, Life, Managed, as_usual, check_pace, reference};

/// How long faults go on that come again and again. What backs off from them for longer and longer goes on soon after.
const FAULTY: Duration = Duration::from_secs(4);

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

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_may_die_at_each_write() {
    let writes = reference().await.writes();
    let cases = [false, true]
        .into_iter()
        .flat_map(|arrives| (1..=writes).map(move |at| (at, arrives)));
    stream::iter(cases)
        .map(|(at, arrives)| async move {
            let managed = Managed::start().await;
            let space = managed.space.clone();
            let lived = Box::pin(managed.interrupted(at, arrives, as_usual(&space))).await;
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
async fn watches_that_end_well_as_soon_as_they_begin_are_not_opened_all_the_time() {
    let managed = Managed::start().await;
    let endpoint = Proxy::start(managed.space.client.clone());
    let settings = di_replicas::Settings::default();
    let _endpoint = Endpoint::with(&managed.space, endpoint.client(), settings).await;
    let proxies = [&managed.proxy, &endpoint];
    for proxy in proxies {
        proxy.watches(Watches::Cut);
    }
    sleep(FAULTY).await;
    for proxy in proxies {
        let came = proxy.came();
        assert!(came.iter().any(Came::is_watch));
        check_pace("cut", &came);
        proxy.watches(Watches::Flow);
    }
    let end = as_usual(&managed.space).await;
    managed.took(end).await.check("cut", 40);
}

/// Nothing comes by any watch, until the minute is over.
async fn silent_for_a_minute() {
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

/// Nothing comes any more by the watches that there are, for as long as they are waited for.
async fn silent_for_ever() {
    let managed = Managed::start().await;
    managed.space.create(&Job::new("before", 2)).await;
    let _kubelet = Kubelet::running(&managed.space);
    managed.space.until_settled("before").await;
    managed.proxy.watches(Watches::Forgotten);
    exit(&managed.space.pods(), "before-coordinator", 0).await;
    // A server ends them after 60 s; one that is not heard any more is given up soon after.
    sleep(Duration::from_secs(45)).await;
    let unheard = managed.space.until("before", "it is there", |_| true).await;
    assert_eq!(unheard.phase, Some(Phase::Running));
    managed.space.until_phase("before", Phase::Succeeded).await;
    let end = as_usual(&managed.space).await;
    let lived = managed.took(end).await;
    assert_eq!(lived.pods.len(), reference().await.pods.len() + 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_may_be_silent_for_a_minute_or_for_ever() {
    tokio::join!(silent_for_a_minute(), silent_for_ever());
}
