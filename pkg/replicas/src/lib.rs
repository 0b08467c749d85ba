//! The replica endpoint that coordinators call to list, add, remove and replace the replicas of
//! running jobs.
//!
//! The endpoint creates no pods. It changes the plan in the status of a job, with one guarded write
//! per request. The reconciler creates and deletes the pods.

mod authorize;
mod endpoint;
mod error;
#[cfg(test)]
mod fixture;
mod handlers;
mod idempotency;
mod list_cache;
mod metrics;
mod mutate;
mod openapi;
mod polls;
mod routes;
mod run_error;
mod server;
mod settings;
mod state;
mod versions;
mod wire;

use std::{sync::Arc, time::Duration};

use di_cache::{JobCache, JobView, PodCache, feed_pods, job_stream};
use futures::StreamExt;
use kube::{Client, runtime::reflector};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet, time::sleep};
use tracing::{info, warn};

pub use endpoint::Endpoint;
pub use metrics::Metrics;
pub use run_error::RunError;
pub use server::serve;
pub use settings::Settings;
pub use state::State;

/// Upper bound for all nodes to remove a terminating pod from its Service.
const ENDPOINT_REMOVAL_DELAY: Duration = Duration::from_secs(5);

/// An endpoint that listens and fills its caches.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    state: State,
    watches: JoinSet<()>,
}

impl Server {
    /// Binds the address and starts the watches of jobs and pods.
    ///
    /// # Errors
    /// When the settings are invalid or the address cannot be bound.
    pub async fn start(
        client: Client,
        settings: Settings,
        metrics: Metrics,
    ) -> Result<Self, RunError> {
        settings.check_limits()?;
        let address = settings.address;
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| RunError::Listen { address, source })?;
        let mut watches = JoinSet::new();
        let (jobs, pods) = start_watches(&client, &mut watches, &metrics);
        info!(%address, "Serving the replica endpoint");
        Ok(Self {
            listener,
            state: State::new(client, jobs, pods, settings, metrics),
            watches,
        })
    }

    /// The state that all requests share.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Serves until some seconds after `shutdown` is ready.
    ///
    /// # Errors
    /// When a watch ends.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) -> Result<(), RunError> {
        // New connections arrive until every node has removed this pod from the Service.
        let delayed_shutdown = async {
            shutdown.await;
            sleep(ENDPOINT_REMOVAL_DELAY).await;
        };
        tokio::select! {
            () = serve(self.listener, self.state, delayed_shutdown) => Ok(()),
            _ = self.watches.join_next() => Err(RunError::WatchEnded),
        }
    }
}

/// Starts the watches of jobs and pods and returns the caches that they fill.
///
/// The watches run in `tasks` and count their errors in `metrics`.
pub fn start_watches(
    client: &Client,
    tasks: &mut JoinSet<()>,
    metrics: &Metrics,
) -> (Arc<JobCache<JobView>>, Arc<PodCache>) {
    let (reader, writer) = reflector::store();
    let jobs = Arc::new(JobCache::new(reader));
    let pods = Arc::new(PodCache::default());
    let (stream, cache) = (job_stream(client.clone(), writer), jobs.clone());
    let failed = metrics.watch_errors.for_resource("dijobs");
    tasks.spawn(stream.for_each(move |event| {
        match event {
            Ok(event) => {
                cache.on_event(&event);
            }
            Err(error) => {
                failed.inc();
                warn!(
                    resource = "dijobs",
                    error = &error as &dyn std::error::Error,
                    "Watch failed, retrying"
                );
            }
        }
        std::future::ready(())
    }));
    let (changed, mut changed_jobs) = mpsc::channel(1024);
    tasks.spawn(feed_pods(
        client.clone(),
        pods.clone(),
        changed,
        metrics.watch_errors.clone(),
    ));
    // The endpoint needs no notice per job: requests that wait for a pod watch the cache.
    tasks.spawn(async move { while changed_jobs.recv().await.is_some() {} });
    (jobs, pods)
}
