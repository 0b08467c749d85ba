use std::time::Duration;

use di_controller::{Metrics, Result, Settings, run};
use kube::Client;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::Proxy;

/// Time between two looks for an API, in the settings of tests that wait for such a look.
pub const DISCOVERY_INTERVAL: Duration = Duration::from_secs(3);

/// The same settings with a short [`DISCOVERY_INTERVAL`].
pub fn with_short_discovery(settings: Settings) -> Settings {
    Settings {
        discovery_interval: DISCOVERY_INTERVAL,
        ..settings
    }
}

/// A manager that runs in this process.
pub struct Manager {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
    registry: Registry,
    /// The proxy between the manager and the API server, if any.
    proxy: Option<Proxy>,
}

impl Manager {
    /// Starts a manager with default settings.
    pub fn start(client: Client) -> Self {
        Self::start_with(client, Settings::default())
    }

    /// Starts a manager with these settings.
    pub fn start_with(client: Client, settings: Settings) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let shutdown = async {
            stopped.await.ok();
        };
        let task = tokio::spawn(run(client, settings, metrics, shutdown));
        Self {
            stop,
            task,
            registry,
            proxy: None,
        }
    }

    /// Keeps the proxy alive as long as the manager.
    #[must_use]
    pub(crate) fn with_proxy(mut self, proxy: Option<Proxy>) -> Self {
        self.proxy = proxy;
        self
    }

    /// The metrics in Prometheus text format.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }

    /// Stops the manager gracefully.
    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
        drop(self.proxy);
    }

    /// Aborts the manager immediately.
    pub async fn kill(self) {
        self.task.abort();
        self.task.await.ok();
    }
}
