//! A leader that is stopped past its lease, in the middle of whatever it does, while another leads, and then goes on: it does no harm.

use std::{sync::Arc, time::Duration};

use di_apiserver_tests::{Fate, Proxy, Space, StoppableLeader, Write, eventually};
use di_controller::{Error, Lease, LeaseSettings, Metrics, lead};
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use tokio::{sync::Notify, task::JoinSet};

use crate::{
    course::all,
    life::{AT_ONCE, Life, as_usual, check_pace, ended_as_usual, reference, settings},
    phases::Phases,
};

/// Of a few seconds, so that a busy machine does not look like a stopped one.
fn lease(space: &Space, identity: &str) -> LeaseSettings {
    LeaseSettings {
        duration: Duration::from_secs(10),
        renew_every: Duration::from_secs(1),
        renew_deadline: Duration::from_secs(8),
        ..LeaseSettings::new(&space.namespace, "leader", identity)
    }
}

/// A life whose leader is stopped at this write, which is either held until it goes on, or arrives and is answered then. Whether it came to
/// that.
async fn usurped(at: usize, fate: Fate) -> bool {
    let space = Space::new().await;
    let phases = Phases::of(&space);
    let upstream = space.server.client_of_manager("first", &space.namespace);
    let proxy = Proxy::start(upstream);
    let reached = Arc::new(Notify::new());
    let notify = reached.clone();
    proxy.rule(move |came| {
        if came.write == at {
            notify.notify_one();
            return fate;
        }
        Fate::Served
    });
    // The rights to a lease are those of the orchestrator's own namespace, and not what is tested here.
    let mut first = StoppableLeader::start(
        proxy.config(),
        space.server.config("first's lease"),
        lease(&space, "first"),
        settings(),
    )
    .await;
    first.leads().await;
    eventually("it says that it leads", async || {
        let told = first.metrics();
        let says_so = told.contains("\ndi_controller_leader 1\n");
        says_so.then_some(()).ok_or(told)
    })
    .await;

    let mut managers = JoinSet::<()>::new();
    let upstream = space.server.client_of_manager("second", &space.namespace);
    let proxy_of_second = Proxy::start(upstream);
    let client = proxy_of_second.client();
    let of_second = Lease::new(
        space.server.client("second's lease"),
        lease(&space, "second"),
    );
    let second = of_second.term();
    managers.spawn(async move {
        // Whoever loses it on a busy machine begins anew, as a container does.
        loop {
            let metrics = Metrics::new(&mut Registry::default());
            let forever = std::future::pending();
            let led = lead(client.clone(), &of_second, settings(), metrics, forever);
            led.await.ok();
        }
    });

    let mut living = std::pin::pin!(as_usual(&space));
    tokio::select! {
        () = reached.notified() => {}
        // It may be done with fewer writes than another.
        _ = &mut living => return false,
    }
    first.stop().await;
    let begun = first.begun();
    living.await;
    // Nothing may have been left to do but that write, and the lease has yet to run out.
    second.lasting().await;

    let continued = Timestamp::now().strftime("%FT%T%.6fZ").to_string();
    proxy.let_go();
    let lost = first.go_on().await;
    let what = format!("write {at}: {fate:?}");
    assert!(matches!(lost, Err(Error::LeaseLost(_))), "{what}: {lost:?}");
    let end = ended_as_usual(&space).await;
    managers.shutdown().await;

    // Some may have been about to be sent, and go out with the first that it does.
    let writes = space.writes_of("first").await;
    assert!(
        writes.len() <= begun,
        "{what}: only what was on its way, and {begun} were begun: {writes:#?}"
    );
    let late = |write: &&Write| write.received > continued && write.is("create", "pods");
    let late = writes.iter().filter(late).count();
    let life = Life::of(&space, end, Vec::new()).await;
    let made = reference().await.pods.len() + late.max(1);
    assert!(life.pods.len() <= made, "{what}: {life:#?}");
    for proxy in [&proxy, &proxy_of_second] {
        check_pace(&what, &proxy.came());
    }
    phases.check().await;
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_stopped_past_its_lease_begins_nothing_when_it_goes_on() {
    let writes = reference().await.writes();
    // What was sent before may arrive late, or have arrived.
    let fates = [Fate::Held, Fate::Delayed];
    let cases = (1..=writes).step_by(2).zip(fates.into_iter().cycle());
    all(cases, AT_ONCE, |(at, fate)| usurped(at, fate)).await;
}
