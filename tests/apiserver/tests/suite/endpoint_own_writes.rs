//! Callers read their own writes.

use std::time::{Duration, Instant};

use di_apiserver_tests::{Endpoint, Job, Kubelet, Space, eventually};
use di_replicas::Settings;

/// An endpoint that answers at once.
async fn hasty(space: &Space, agent: &str) -> Endpoint {
    let settings = Settings {
        allow_anonymous: true,
        create_wait: Duration::ZERO,
        ..Settings::default()
    };
    Endpoint::start_with(space, agent, settings).await
}

async fn writes_are_read(endpoint: &Endpoint, rounds: usize) {
    for round in 0..rounds {
        let before = endpoint.list("job").await.pods();
        let added = endpoint.add("job", 2, None).await.pods();
        let listed = endpoint.list("job").await.pods();
        let all = |names: &[String]| names.iter().all(|name| listed.contains(name));
        assert!(
            all(&added) && all(&before),
            "round {round}: {added:?}, listed {listed:?}"
        );

        let fresh = endpoint.failed("job", &added[0]).await.pods();
        let listed = endpoint.list("job").await.pods();
        assert!(!listed.contains(&added[0]), "round {round}: {listed:?}");
        assert!(listed.contains(&fresh[0]), "round {round}: {listed:?}");

        let gone = endpoint.remove("job", 2).await.pods();
        let listed = endpoint.list("job").await.pods();
        assert!(
            gone.iter().all(|name| !listed.contains(name)),
            "round {round}: {gone:?}"
        );
        assert_eq!(listed.len(), before.len(), "round {round}");
    }
}

#[tokio::test]
async fn a_list_shows_what_the_same_caller_has_just_changed() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = hasty(&space, "endpoint").await;
    space.create(&Job::new("job", 1)).await;
    space.until_settled("job").await;
    eventually("the endpoint knows the job", async || {
        let listed = endpoint.list("job").await;
        if listed.body["success"] == true {
            Ok(())
        } else {
            Err(format!("{listed:?}"))
        }
    })
    .await;
    writes_are_read(&endpoint, 25).await;
    manager.stop().await;
}

#[tokio::test]
async fn also_while_its_watch_brings_nothing() {
    let space = Space::new().await;
    let mut endpoint = hasty(&space, "endpoint").await;
    space.create(&Job::new("job", 0)).await;
    eventually("the endpoint knows the job", async || {
        let listed = endpoint.list_in(&space.namespace, "job").await;
        if listed.body["success"] == true {
            Ok(())
        } else {
            Err(format!("{listed:?}"))
        }
    })
    .await;
    endpoint.stop_watching().await;
    writes_are_read(&endpoint, 10).await;
}

#[tokio::test]
async fn f34_every_replica_serves_and_is_one_watch_event_behind_the_others() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let one = hasty(&space, "one").await;
    let two = hasty(&space, "two").await;
    space.create(&Job::new("job", 0)).await;
    space.until_settled("job").await;
    let mut slowest = Duration::ZERO;
    for round in 0..10 {
        let (writer, reader) = if round % 2 == 0 {
            (&one, &two)
        } else {
            (&two, &one)
        };
        let added = writer.add("job", 1, None).await.pods();
        let since = Instant::now();
        eventually("the other lists it", async || {
            let listed = reader.list("job").await.pods();
            if listed.contains(&added[0]) {
                Ok(())
            } else {
                Err(format!("{listed:?}"))
            }
        })
        .await;
        slowest = slowest.max(since.elapsed());
        // No event is waited for by a write: it finds the newest state, or is refused and looks again.
        let gone = reader.remove("job", 1).await.pods();
        assert_eq!(gone, added);
    }
    // An event takes milliseconds; this only bounds it on a machine that has much else to do.
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    manager.stop().await;
}
