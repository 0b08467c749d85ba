//! A job's life, with every fault that a server, a network or a manager's death can show: it ends as an undisturbed one does.

use std::{
    collections::BTreeSet,
    sync::Mutex,
    time::{Duration, Instant},
};

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{Came, Endpoint, Fate, Job, Kubelet, Proxy, Watches, eventually, exit};
use futures::future::join_all;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    course::{Course, dies_at, dies_at_the_end, each_write_meets},
    life::{AT_ONCE, JOB, Managed, Usual, as_usual, check_pace, reference},
    phases::Phases,
};

/// How long faults go on that come again and again. What backs off from them for longer and longer goes on soon after.
const FAULTY: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread")]
async fn each_write_may_be_refused() {
    let codes = [409, 429, 500, 504].map(Fate::Refused);
    each_write_meets::<Usual>(&[&codes[..], &[Fate::Garbled]].concat(), AT_ONCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_write_may_hang_or_its_answer_be_lost() {
    each_write_meets::<Usual>(&[Fate::Hung, Fate::Unanswered, Fate::Lost], AT_ONCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_may_die_at_each_write() {
    let writes = reference().await.writes();
    dies_at::<Usual>(1..=writes, AT_ONCE, 20).await;
    dies_at_the_end::<Usual>().await;
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
    for lived in join_all((0..AT_ONCE).map(|_| Usual::under(fate))).await {
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
        let lived = Usual::under(move |came| {
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

/// Watches end all the time, and half of those that follow are refused.
async fn refused_at_times(fate: Fate) {
    watched(&format!("{fate:?}"), async |proxy| {
        let refused = |came: &Came| came.is_watch() && rand::random();
        proxy.rule(move |came| if refused(came) { fate } else { Fate::Served });
        now_and_then(proxy, Watches::Cut).await;
        proxy.rule(|_| Fate::Served);
    })
    .await;
}

/// The watches of one kind lag or break for long, while the others go on.
async fn only(kind: &'static str, what: Watches) {
    watched(&format!("{kind} {what:?}"), async |proxy| {
        let began = Instant::now();
        while began.elapsed() < FAULTY {
            proxy.watches_of(kind, what);
            sleep(Duration::from_millis(1500)).await;
            proxy.watches(Watches::Flow);
            sleep(Duration::from_millis(300)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watches_of_one_kind_may_lag_or_break_while_the_others_go_on() {
    let kinds = ["pods", "services", "dijobs"];
    let lives = kinds.into_iter().flat_map(|kind| {
        let ways = [Watches::Frozen, Watches::Cut, Watches::Expired];
        ways.map(|what| only(kind, what))
    });
    join_all(lives).await;
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
        refused_at_times(Fate::Garbled),
        refused_at_times(Fate::Indented(403)),
        refused_at_times(Fate::Indented(429)),
        refused_at_times(Fate::Indented(500)),
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
    for proxy in proxies {
        eventually("it watches", async || {
            let watches = proxy.came().iter().any(Came::is_watch);
            watches.then_some(()).ok_or_else(String::new)
        })
        .await;
    }
    sleep(FAULTY).await;
    for proxy in proxies {
        check_pace("cut", &proxy.came());
        proxy.watches(Watches::Flow);
    }
    let end = as_usual(&managed.space).await;
    managed.took(end).await.check("cut", 40);
}

/// A job that ends while its manager's watches are silent in this way, and then another life.
async fn silent(what: &str, silence: Watches, wait: impl AsyncFn(&Managed)) {
    let managed = Managed::start().await;
    let phases = Phases::of(&managed.space);
    managed.space.create(&Job::new("before", 2)).await;
    let kubelet = Kubelet::running(&managed.space);
    managed.space.until_settled("before").await;
    // The life has its own, of all pods.
    drop(kubelet);
    managed.proxy.watches(silence);
    exit(&managed.space.pods(), "before-coordinator", 0).await;
    wait(&managed).await;
    managed.space.until_phase("before", Phase::Succeeded).await;
    let end = as_usual(&managed.space).await;
    phases.check().await;
    let space = managed.space.clone();
    // The one before has requests of its own.
    managed.took(end).await.check(what, 100);
    let writes = space.writes_of("manager").await.into_iter();
    let made = writes.filter(|w| w.concerns("before") && w.is("create", "pods") && w.code == 201);
    assert_eq!(made.count(), 3, "{what}");
}

/// Nothing comes by any watch, until the minute is over.
async fn silent_for_a_minute() {
    silent("a minute", Watches::Frozen, async |managed| {
        sleep(Duration::from_secs(60)).await;
        managed.proxy.watches(Watches::Flow);
    })
    .await;
}

/// Nothing comes any more by the watches that there are, for as long as they are waited for.
async fn silent_for_ever() {
    silent("for ever", Watches::Forgotten, async |managed| {
        // A server ends them after 60 s; one that is not heard any more is given up soon after.
        sleep(Duration::from_secs(30)).await;
        let unheard = managed.space.until("before", "it is there", |_| true).await;
        assert_eq!(unheard.phase, Some(Phase::Running));
    })
    .await;
}

/// Nothing comes by the watch of pods, from before the first is made until those that were made count as there no more without it. Then the
/// server is asked for them.
async fn pods_unseen_for_a_minute() {
    let managed = Managed::start().await;
    let space = &managed.space;
    managed.proxy.watches_of("pods", Watches::Frozen);
    let unseen = async {
        let made = |s: &DIJobStatus| {
            let all = s.plan.iter().all(|entry| entry.uid.is_some());
            s.plan.len() == 2 && all
        };
        space.until(JOB, "all is made", made).await;
        sleep(Duration::from_secs(61)).await;
        // Something has it looked at.
        let touch = Patch::Merge(json!({"metadata": {"annotations": {"looked": "at"}}}));
        let params = PatchParams::default();
        space.jobs().patch(JOB, &params, &touch).await.unwrap();
        let runs = |s: &DIJobStatus| s.phase == Some(Phase::Running);
        space.until(JOB, "it is seen to run", runs).await;
        managed.proxy.watches(Watches::Flow);
    };
    let (end, ()) = tokio::join!(as_usual(space), unseen);
    managed.took(end).await.check("pods unseen", 100);
}

/// A manager whose lists, and whose watches, are not answered at first.
async fn unanswered_at_first() {
    // The lists that fill the caches, and the watches that follow.
    let lives = [Came::is_list, Came::is_watch].map(|asks| async move {
        let seen = Mutex::new(BTreeSet::new());
        let lived = Usual::under(move |came| {
            let first = || seen.lock().unwrap().insert(came.path().to_owned());
            if asks(came) && first() {
                Fate::Hung
            } else {
                Fate::Served
            }
        });
        lived.await.check("unanswered at first", 40);
    });
    join_all(lives).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_may_be_silent_for_a_minute_or_for_ever() {
    tokio::join!(
        silent_for_a_minute(),
        silent_for_ever(),
        pods_unseen_for_a_minute(),
        unanswered_at_first()
    );
}
