//! Leader election: of several processes, the holder of the lease reconciles.

use std::future::Future;

use futures::FutureExt;
use kube::Client;

use crate::{Lease, Metrics, Settings, error::Result, run};

/// Waits for the lease, then reconciles jobs while this process holds it, until `shutdown`
/// resolves.
///
/// # Errors
/// [`Error::LeaseLost`](crate::Error::LeaseLost) when another process may lead now: the reconciler
/// and its tasks have ended, and the caller may wait for the lease again. Also the errors of
/// [`run`].
pub async fn run_with_leader_election(
    client: Client,
    lease: &Lease,
    settings: Settings,
    metrics: Metrics,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let shutdown = shutdown.shared();
    tokio::select! {
        () = lease.acquire() => {}
        () = shutdown.clone() => return Ok(()),
    }
    metrics.leader.set(1);
    let settings = Settings {
        leader_token: Some(lease.leader_token()),
        ..settings
    };
    tokio::select! {
        // The lease comes first: a process that was paused for long must notice the loss before it
        // does anything else.
        biased;
        lost = lease.renew_loop() => match lost {
            Ok(never) => match never {},
            Err(error) => {
                metrics.leader.set(0);
                Err(error)
            }
        },
        ended = run(client, settings, metrics.clone(), shutdown) => {
            lease.release().await;
            ended
        }
    }
}
