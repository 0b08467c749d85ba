//! Leader election with a Lease.

use std::time::{Duration, Instant};

use di_apiserver_tests::{Space, eventually};
use di_controller::{Error, Lease, LeaseSettings};
use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::Api;

/// Creates a lease of this duration for this process.
pub(crate) fn new_lease(space: &Space, identity: &str, duration: Duration) -> Lease {
    // This test does not cover the lease's RBAC rules.
    let settings = LeaseSettings {
        duration,
        // This interval is also the timeout of each request.
        retry_period: Duration::from_secs(1).min(duration.mul_f64(0.1)),
        renew_deadline: duration.mul_f64(0.7),
        ..LeaseSettings::new(&space.namespace, "leader", identity)
    };
    Lease::new(space.server.client(identity), settings)
}

/// Returns version and holder of the Lease.
pub(crate) async fn version_and_holder(space: &Space) -> Option<(String, Option<String>)> {
    let api: Api<Object> = Api::namespaced(space.client.clone(), &space.namespace);
    let lease = api.get_opt("leader").await.unwrap()?;
    Some((
        lease.metadata.resource_version?,
        lease.spec?.holder_identity,
    ))
}

/// Releases the lease until that succeeds: a slow server may cause a timeout.
async fn release_lease(space: &Space, lease: &Lease, identity: &str) {
    eventually("the lease is released", async || {
        lease.release().await;
        match version_and_holder(space).await.unwrap().1 {
            Some(holder) if holder == identity => Err(holder),
            _ => Ok(()),
        }
    })
    .await;
}

#[tokio::test]
async fn released_lease_is_acquired_at_once() {
    let space = Space::new().await;
    // Far too long to expire during the test.
    let duration = Duration::from_secs(3600);
    let (first, second) = (
        new_lease(&space, "first", duration),
        new_lease(&space, "second", duration),
    );
    first.acquire().await;
    let holding = tokio::spawn({
        let first = first.clone();
        async move { first.renew_loop().await }
    });
    let waiting = tokio::spawn(async move { second.acquire().await });
    let mut versions = vec![];
    eventually("the lease is renewed some times", async || {
        let (version, holder) = version_and_holder(&space).await.unwrap();
        assert_eq!(holder.as_deref(), Some("first"));
        if versions.last() != Some(&version) {
            versions.push(version);
        }
        if versions.len() > 4 {
            Ok(())
        } else {
            Err(format!("{versions:?}"))
        }
    })
    .await;
    assert!(!waiting.is_finished() && !holding.is_finished());
    holding.abort();
    holding.await.ok();

    release_lease(&space, &first, "first").await;
    // Long before the lease would expire.
    let handed_over = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    handed_over.unwrap().unwrap();
    assert_eq!(
        version_and_holder(&space).await.unwrap().1.as_deref(),
        Some("second")
    );
    // A release by a process that is not the holder has no effect.
    first.release().await;
    assert_eq!(
        version_and_holder(&space).await.unwrap().1.as_deref(),
        Some("second")
    );
}

#[tokio::test]
async fn expired_holder_is_replaced_and_detects_it() {
    let space = Space::new().await;
    let duration = Duration::from_secs(2);
    let (first, second) = (
        new_lease(&space, "first", duration),
        new_lease(&space, "second", duration),
    );
    first.acquire().await;
    let began = Instant::now();
    second.acquire().await;
    assert!(began.elapsed() >= duration, "{:?}", began.elapsed());

    let lost = first.renew_loop().await;
    assert!(matches!(lost, Err(Error::LeaseLost(_))), "{lost:?}");
    assert_eq!(
        version_and_holder(&space).await.unwrap().1.as_deref(),
        Some("second")
    );
}

#[tokio::test]
async fn candidates_acquire_lease_one_at_a_time() {
    let space = Space::new().await;
    let duration = Duration::from_secs(3600);
    let mut waiting = tokio::task::JoinSet::new();
    for i in 0..8 {
        let identity = format!("candidate-{i}");
        let lease = new_lease(&space, &identity, duration);
        waiting.spawn(async move {
            lease.acquire().await;
            (identity, lease)
        });
    }
    // If two processes had acquired the lease, one of them would not be the holder.
    while let Some(leader) = waiting.join_next().await {
        let (identity, lease) = leader.unwrap();
        let holder = version_and_holder(&space).await.unwrap().1;
        assert_eq!(holder.as_ref(), Some(&identity));
        release_lease(&space, &lease, &identity).await;
    }
    assert_eq!(version_and_holder(&space).await.unwrap().1, None);
}
