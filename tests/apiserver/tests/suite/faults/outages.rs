//! The API server and etcd are killed and restarted while jobs run; all jobs end as without faults.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use di_api::DIJobStatus;
use di_apiserver_tests::{
    Job, Kubelet, Part, ProxyAction, RecordedRequest, Server, Space, eventually,
};
use futures::future::join_all;
use tokio::{
    sync::{OnceCell, Semaphore},
    time::sleep,
};

use crate::{
    faults::job_run::{
        AT_ONCE, JobRun, ProxiedManager, complete_like_reference, reference_run,
        short_timeout_settings,
    },
    faults::scenario::check_reached,
};

/// A server for these tests only, since they kill it.
async fn outage_server() -> &'static Server {
    static SERVER: OnceCell<Server> = OnceCell::const_new();
    SERVER.get_or_init(Server::installed).await
}

/// Runs a job whose manager is at this write when the outage comes. Also returns whether the run
/// had this write.
async fn interrupt_at_write(server: &'static Server, at: usize, outage: &Outage) -> (JobRun, bool) {
    let managed = ProxiedManager::start_in(Space::on(server).await, short_timeout_settings());
    let waiting = Arc::new(Semaphore::new(0));
    let reached = waiting.clone();
    managed.proxy.set_rule(move |request| {
        if request.write < at {
            return ProxyAction::Served;
        }
        reached.add_permits(1);
        ProxyAction::Paused
    });
    let space = managed.space.clone();
    let mut living = std::pin::pin!(complete_like_reference(&space));
    let end = tokio::select! {
        _ = waiting.acquire() => None,
        // A run may complete with fewer writes than the reference.
        end = &mut living => Some(end),
    };
    outage.ready.add_permits(1);
    let outage = async {
        outage.began.acquire().await.unwrap().forget();
        managed.proxy.set_rule(|_| ProxyAction::Served);
        managed.proxy.resume_paused();
    };
    let reached = end.is_none();
    let end = match end {
        Some(end) => {
            outage.await;
            end
        }
        None => tokio::join!(living, outage).0,
    };
    wait_for_server(&space).await;
    (managed.stop_and_record(end).await, reached)
}

async fn wait_for_server(space: &Space) {
    eventually("the server answers", async || {
        let jobs = space.jobs().list(&kube::api::ListParams::default()).await;
        jobs.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

/// Signals when the runs are ready for the outage, and when it has begun.
struct Outage {
    ready: Semaphore,
    began: Semaphore,
}

/// Kills these programs while runs are at writes spread over their whole length.
async fn kill_parts_during_runs(parts: &[Part]) {
    let server = outage_server().await;
    let writes = reference_run().await.writes();
    let outage = Outage {
        ready: Semaphore::new(0),
        began: Semaphore::new(0),
    };
    let places: Vec<_> = (0..AT_ONCE).map(|i| 1 + i * writes / AT_ONCE).collect();
    let all = u32::try_from(AT_ONCE).unwrap();
    let lives = places
        .iter()
        .map(|at| interrupt_at_write(server, *at, &outage));
    let strike = async {
        outage.ready.acquire_many(all).await.unwrap().forget();
        server.kill_parts(parts).await;
        // Pending requests reach no server, or one without its etcd.
        outage.began.add_permits(AT_ONCE);
        server.start_parts(parts).await;
    };
    let (ended, ()) = tokio::join!(join_all(lives), strike);
    for ((life, _), at) in ended.iter().zip(places) {
        life.check_bounds(&format!("{parts:?} at write {at}"), 200);
    }
    check_reached(ended.iter().map(|(_, reached)| *reached));
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_complete_after_api_server_or_etcd_is_killed() {
    // Run them in sequence, since they share the server that they kill.
    kill_parts_during_runs(&[Part::ApiServer]).await;
    kill_parts_during_runs(&[Part::Etcd]).await;
    kill_parts_during_runs(&[Part::ApiServer, Part::Etcd]).await;
    wait_for_server(&Space::on(outage_server().await).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_reconcile_after_api_server_recovers() {
    const JOBS: usize = 20;
    let managed = ProxiedManager::start().await;
    let _kubelet = Kubelet::running(&managed.space);
    // As during an etcd outage: watches stay open without events, and writes fail.
    managed.proxy.set_rule(|request| match request.write {
        0 => ProxyAction::Served,
        _ => ProxyAction::Rejected(500),
    });
    for job in 0..JOBS {
        managed
            .space
            .create(&Job::new(&format!("late-{job}"), 1))
            .await;
    }
    // By now each job waits for up to 10 s, the maximum that `backoff.rs` tests. See
    // docs/decisions/0027.
    sleep(Duration::from_secs(30)).await;
    let tried = managed.proxy.requests().len();
    assert!(tried < JOBS * 40, "{tried} requests");
    managed.proxy.set_rule(|_| ProxyAction::Served);
    for job in 0..JOBS {
        managed.space.until_settled(&format!("late-{job}")).await;
    }
    managed.manager.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_pod_creates_are_retried_in_small_batches() {
    const COLLECTORS: usize = 100;
    let managed = ProxiedManager::start().await;
    let _kubelet = Kubelet::running(&managed.space);
    let makes_a_pod =
        |request: &RecordedRequest| request.method == "POST" && request.path().ends_with("/pods");
    // Reject all pod creates except the first, which is the coordinator's.
    let coordinates = AtomicBool::new(true);
    managed.proxy.set_rule(move |request| {
        if makes_a_pod(request) && !coordinates.swap(false, Relaxed) {
            ProxyAction::Rejected(500)
        } else {
            ProxyAction::Served
        }
    });
    managed.space.create(&Job::new("denied", COLLECTORS)).await;
    let is_reported = |s: &DIJobStatus| s.reason.as_deref() == Some("ApiError");
    managed
        .space
        .until("denied", "ApiError is reported", is_reported)
        .await;
    sleep(Duration::from_secs(30)).await;
    let requests = managed.proxy.requests();
    let tried = requests
        .iter()
        .filter(|request| makes_a_pod(request))
        .count();
    // About ten growing delays, each with one small batch.
    assert!(tried < 3 * COLLECTORS, "{tried} pods were tried");

    managed.proxy.set_rule(|_| ProxyAction::Served);
    let status = managed.space.until_settled("denied").await;
    assert_eq!(status.reason, None);
    managed.manager.stop().await;
}
