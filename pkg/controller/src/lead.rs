//! One of several processes reconciles: the one that holds the lease.

use std::future::Future;

use futures::FutureExt;
use kube::Client;

use crate::{Lease, Metrics, Settings, error::Result, run};

/// Waits for the lease, then reconciles jobs while this process holds it, until `shutdown` resolves.
///
/// # Errors
/// [`Error::LeaseLost`](crate::Error::LeaseLost) when another may lead by now: the process must end and start anew. And those of [`run`].
pub async fn lead(
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
        term: Some(lease.term()),
        ..settings
    };
    tokio::select! {
        // First, so that one who was stopped for long hears of the loss before it does anything else.
        biased;
        lost = lease.hold() => match lost {
            Ok(never) => match never {},
            Err(error) => Err(error),
        },
        ended = run(client, settings, metrics, shutdown) => {
            lease.release().await;
            ended
        }
    }
}
