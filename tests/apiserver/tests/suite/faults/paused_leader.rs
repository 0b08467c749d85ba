//! A leader that is paused beyond its lease while another one leads, and then resumes: it must do
//! no harm.

use std::{sync::Arc, time::Duration};

use di_apiserver_tests::{PausableLeader, Proxy, ProxyAction, Space, Write, eventually};
use di_controller::{Error, Lease, LeaseSettings, Metrics, run_with_leader_election};
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use tokio::{sync::Notify, task::JoinSet};

use crate::{
    faults::job_run::{
        AT_ONCE, JobRun, check_watch_rate, complete_like_reference, reference_run,
        short_timeout_settings, wait_for_reference_end,
    },
    faults::phase_monitor::PhaseMonitor,
    faults::scenario::run_cases,
};

/// A lease of several seconds, so that a slow machine does not look paused.
fn lease_settings(space: &Space, identity: &str) -> LeaseSettings {
    LeaseSettings {
        duration: Duration::from_secs(10),
        retry_period: Duration::from_secs(1),
        renew_deadline: Duration::from_secs(8),
        ..LeaseSettings::new(&space.namespace, "leader", identity)
    }
}

/// Runs a job whose leader is paused at this write. The write reaches the API server when the
/// leader resumes, or its response is delayed until then. Returns whether the run had this write.
async fn pause_leader_at_write(at: usize, fate: ProxyAction) -> bool {
    let space = Space::new().await;
    let phases = PhaseMonitor::start(&space);
    let upstream = space.server.client_of_manager("first", &space.namespace);
    let proxy = Proxy::start(upstream);
    let reached = Arc::new(Notify::new());
    let notify = reached.clone();
    proxy.set_rule(move |request| {
        if request.write == at {
            notify.notify_one();
            return fate;
        }
        ProxyAction::Served
    });
    // This test does not cover the lease's RBAC rules.
    let mut first = PausableLeader::start(
        proxy.config(),
        space.server.config("first's lease"),
        lease_settings(&space, "first"),
        short_timeout_settings(),
    )
    .await;
    first.wait_for_leadership().await;
    eventually("its metrics report the leadership", async || {
        let metrics = first.metrics();
        let is_leader = metrics.contains("\ndi_controller_leader 1\n");
        is_leader.then_some(()).ok_or(metrics)
    })
    .await;

    let mut managers = JoinSet::<()>::new();
    let upstream = space.server.client_of_manager("second", &space.namespace);
    let proxy_of_second = Proxy::start(upstream);
    let client = proxy_of_second.client();
    let of_second = Lease::new(
        space.server.client("second's lease"),
        lease_settings(&space, "second"),
    );
    let second = of_second.leader_token();
    managers.spawn(async move {
        // If the lease is lost on a slow machine, start again, like a restarted container.
        loop {
            let metrics = Metrics::new(&mut Registry::default());
            let forever = std::future::pending();
            let led = run_with_leader_election(
                client.clone(),
                &of_second,
                short_timeout_settings(),
                metrics,
                forever,
            );
            led.await.ok();
        }
    });

    let mut living = std::pin::pin!(complete_like_reference(&space));
    tokio::select! {
        () = reached.notified() => {}
        // A run may complete with fewer writes than the reference.
        _ = &mut living => return false,
    }
    first.pause().await;
    let begun = first.started_writes();
    living.await;
    // The job may be complete before the old lease expires, so wait for the second leader.
    second.wait_until_valid().await;

    let continued = Timestamp::now().strftime("%FT%T%.6fZ").to_string();
    proxy.resume_paused();
    let lost = first.resume().await;
    let description = format!("write {at}: {fate:?}");
    assert!(
        matches!(lost, Err(Error::LeaseLost(_))),
        "{description}: {lost:?}"
    );
    let end = wait_for_reference_end(&space).await;
    managers.shutdown().await;

    // Some started writes may be sent after the resume.
    let writes = space.writes_of("first").await;
    assert!(
        writes.len() <= begun,
        "{description}: {begun} writes were started before the pause: {writes:#?}"
    );
    let late = |write: &&Write| write.received > continued && write.is_call("create", "pods");
    let late = writes.iter().filter(late).count();
    let life = JobRun::collect(&space, end, Vec::new()).await;
    let made = reference_run().await.pods.len() + late.max(1);
    assert!(life.pods.len() <= made, "{description}: {life:#?}");
    for proxy in [&proxy, &proxy_of_second] {
        check_watch_rate(&description, &proxy.requests());
    }
    phases.check().await;
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_leader_past_lease_starts_no_write_on_resume() {
    let writes = reference_run().await.writes();
    // The write at the pause may arrive late, or have arrived before.
    let fates = [ProxyAction::Paused, ProxyAction::Delayed];
    let cases = (1..=writes).step_by(2).zip(fates.into_iter().cycle());
    run_cases(cases, AT_ONCE, |(at, fate)| pause_leader_at_write(at, fate)).await;
}
