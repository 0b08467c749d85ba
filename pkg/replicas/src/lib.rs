//! The replica endpoint that coordinators call: it lists, adds, removes and replaces the replicas of running jobs.
//!
//! It never makes pods. It changes the plan in a job's status, in one guarded write a request, and the reconciler makes the pods so.

mod authorize;
mod connection_counter;
mod error;
#[cfg(test)]
mod fixture;
mod handlers;
mod idempotency;
mod list_cache;
mod metrics;
mod mutate;
mod openapi;
mod routes;
mod server;
mod settings;
mod state;
mod wire;

use std::{sync::Arc, time::Duration};

use di_cache::{JobCache, JobView, PodCache, feed_pods, job_stream};
use futures::StreamExt;
use kube::{Client, runtime::reflector};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet, time::sleep};
use tracing::{info, warn};

pub use metrics::Metrics;
pub use routes::Endpoint;
pub use server::serve;
pub use settings::Settings;
pub use state::State;

/// How long every node of a cluster takes at most to hear that a pod is leaving its Service.
const ENDPOINT_REMOVAL_DELAY: Duration = Duration::from_secs(5);

/// Why the endpoint ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Its address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A watch ended, which none does by itself.
    #[error("a watch ended")]
    WatchEnded,
    /// A limit lets nothing through.
    #[error("the limit of {0} is 0, so that nothing would be served")]
    LimitIsZero(&'static str),
    /// Waits leave no time to serve a request.
    #[error(
        "a request may wait {waits:?} in all (for the first lists, for kubelets, for the scheduler) and take {request:?}: shorten the waits, or allow it more"
    )]
    WaitsExceedTimeout {
        /// How long it may wait.
        waits: std::time::Duration,
        /// How long it may take.
        request: std::time::Duration,
    },
}

/// An endpoint whose caches are being filled.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    state: State,
    watches: JoinSet<()>,
}

impl Server {
    /// Takes its address, and begins to watch jobs and pods.
    ///
    /// # Errors
    /// When the settings serve nobody, or the address cannot be listened on.
    pub async fn start(
        client: Client,
        settings: Settings,
        metrics: Metrics,
    ) -> Result<Self, RunError> {
        settings.check()?;
        let address = settings.address;
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| RunError::Listen { address, source })?;
        let mut watches = JoinSet::new();
        let (jobs, pods) = watch(&client, &mut watches, &metrics);
        info!(%address, "Serving the replica endpoint");
        Ok(Self {
            listener,
            state: State::new(client, jobs, pods, settings, metrics),
            watches,
        })
    }

    /// What its requests share.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Serves until a while after `shutdown` is ready.
    ///
    /// # Errors
    /// When a watch ends.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) -> Result<(), RunError> {
        // New connections arrive until every node has heard that this pod is leaving the Service.
        let left = async {
            shutdown.await;
            sleep(ENDPOINT_REMOVAL_DELAY).await;
        };
        tokio::select! {
            () = serve(self.listener, self.state, left) => Ok(()),
            _ = self.watches.join_next() => Err(RunError::WatchEnded),
        }
    }
}

/// Caches of jobs and pods, which are fed by tasks that end with `tasks` only, and tell `metrics` of their errors.
pub fn watch(
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
                    "Watch failed, trying again"
                );
            }
        }
        std::future::ready(())
    }));
    let (changed, mut concerned) = mpsc::channel(1024);
    tasks.spawn(feed_pods(
        client.clone(),
        pods.clone(),
        changed,
        metrics.watch_errors.clone(),
    ));
    // Nobody here is woken by a change of one job; who waits for a pod watches the cache.
    tasks.spawn(async move { while concerned.recv().await.is_some() {} });
    (jobs, pods)
}
