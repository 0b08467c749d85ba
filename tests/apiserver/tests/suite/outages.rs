//! The API server, and what holds its objects, are killed and come back while jobs live: all of them end as undisturbed ones do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use di_api::DIJobStatus;
use di_apiserver_tests::{Came, Fate, Job, Kubelet, Part, Server, Space, eventually};
use futures::future::join_all;
use tokio::{
    sync::{OnceCell, Semaphore},
    time::sleep,
};

use crate::{
    course::check_reached,
    life::{AT_ONCE, Life, Managed, as_usual, reference, settings},
};

/// One of our own: the others' tests need theirs.
async fn server() -> &'static Server {
    static SERVER: OnceCell<Server> = OnceCell::const_new();
    SERVER.get_or_init(Server::installed).await
}

/// A life whose manager is in the middle of this write, and of what it does at the same time, when the outage comes; and whether it was.
async fn interrupted(server: &'static Server, at: usize, outage: &Outage) -> (Life, bool) {
    let managed = Managed::start_in(Space::on(server).await, settings());
    let waiting = Arc::new(Semaphore::new(0));
    let reached = waiting.clone();
    managed.proxy.rule(move |came| {
        if came.write < at {
            return Fate::Served;
        }
        reached.add_permits(1);
        Fate::Held
    });
    let space = managed.space.clone();
    let mut living = std::pin::pin!(as_usual(&space));
    let end = tokio::select! {
        _ = waiting.acquire() => None,
        // It may be done with fewer writes than another.
        end = &mut living => Some(end),
    };
    outage.ready.add_permits(1);
    let outage = async {
        outage.began.acquire().await.unwrap().forget();
        managed.proxy.rule(|_| Fate::Served);
        managed.proxy.let_go();
    };
    let reached = end.is_none();
    let end = match end {
        Some(end) => {
            outage.await;
            end
        }
        None => tokio::join!(living, outage).0,
    };
    answers(&space).await;
    (managed.took(end).await, reached)
}

async fn answers(space: &Space) {
    eventually("the server answers", async || {
        let jobs = space.jobs().list(&kube::api::ListParams::default()).await;
        jobs.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

/// When lives are ready for it, and when it has begun.
struct Outage {
    ready: Semaphore,
    began: Semaphore,
}

/// Has these parts of the server fail while lives are in the middle of writes all over their length.
async fn survive(parts: &[Part]) {
    let server = server().await;
    let writes = reference().await.writes();
    let outage = Outage {
        ready: Semaphore::new(0),
        began: Semaphore::new(0),
    };
    let places: Vec<_> = (0..AT_ONCE).map(|i| 1 + i * writes / AT_ONCE).collect();
    let all = u32::try_from(AT_ONCE).unwrap();
    let lives = places.iter().map(|at| interrupted(server, *at, &outage));
    let strike = async {
        outage.ready.acquire_many(all).await.unwrap().forget();
        server.kill(parts).await;
        // What was on its way arrives nowhere, or at a server that has nothing to keep it in.
        outage.began.add_permits(AT_ONCE);
        server.start_again(parts).await;
    };
    let (ended, ()) = tokio::join!(join_all(lives), strike);
    for ((life, _), at) in ended.iter().zip(places) {
        life.check_within(&format!("{parts:?} at write {at}"), 200);
    }
    check_reached(ended.iter().map(|(_, reached)| *reached));
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_live_on_when_the_api_server_or_its_etcd_was_killed() {
    // One after the other: they share the server that they kill.
    survive(&[Part::ApiServer]).await;
    survive(&[Part::Etcd]).await;
    survive(&[Part::ApiServer, Part::Etcd]).await;
    answers(&Space::on(server().await).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_jobs_are_looked_after_soon_once_a_server_takes_writes_again() {
    const JOBS: usize = 20;
    let managed = Managed::start().await;
    let _kubelet = Kubelet::running(&managed.space);
    // As while its etcd is away: what is watched goes on, and is quiet.
    managed.proxy.rule(|came| match came.write {
        0 => Fate::Served,
        _ => Fate::Refused(500),
    });
    for job in 0..JOBS {
        managed
            .space
            .create(&Job::new(&format!("late-{job}"), 1))
            .await;
    }
    // By then each job would wait for most of a minute.
    sleep(Duration::from_secs(30)).await;
    let tried = managed.proxy.came().len();
    assert!(tried < JOBS * 40, "{tried} requests");
    managed.proxy.rule(|_| Fate::Served);
    let back = Instant::now();
    for job in 0..JOBS {
        managed.space.until_settled(&format!("late-{job}")).await;
    }
    let took = back.elapsed();
    // The next time that each tries by itself is later.
    assert!(took < Duration::from_secs(20), "{took:?}");
    managed.manager.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_a_webhook_which_is_down_fails_are_tried_seldom_and_few_at_a_time() {
    const COLLECTORS: usize = 100;
    let managed = Managed::start().await;
    let _kubelet = Kubelet::running(&managed.space);
    let makes_a_pod = |came: &Came| came.method == "POST" && came.path().ends_with("/pods");
    // All but the coordinator, which comes first.
    let coordinates = AtomicBool::new(true);
    managed.proxy.rule(move |came| {
        if makes_a_pod(came) && !coordinates.swap(false, Relaxed) {
            Fate::Refused(500)
        } else {
            Fate::Served
        }
    });
    managed.space.create(&Job::new("denied", COLLECTORS)).await;
    let told = |s: &DIJobStatus| s.reason.as_deref() == Some("ApiError");
    managed.space.until("denied", "it is told of", told).await;
    sleep(Duration::from_secs(30)).await;
    let came = managed.proxy.came();
    let tried = came.iter().filter(|came| makes_a_pod(came)).count();
    // About ten times, ever later, and each time as many as are tried at once.
    assert!(tried < 3 * COLLECTORS, "{tried} pods were tried");

    managed.proxy.rule(|_| Fate::Served);
    let status = managed.space.until_settled("denied").await;
    assert_eq!(status.reason, None);
    managed.manager.stop().await;
}
