use di_controller::{Metrics, Result, Settings, run};
use kube::Client;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::Proxy;

/// A reconciler of this process.
pub struct Manager {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
    registry: Registry,
    /// What it reaches the server by, if that is not the server itself.
    proxy: Option<Proxy>,
}

impl Manager {
    /// Starts one.
    pub fn start(client: Client) -> Self {
        Self::start_with(client, Settings::default())
    }

    /// Starts one that works as said.
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

    /// Keeps what it reaches the server by.
    #[must_use]
    pub(crate) fn with_proxy(mut self, proxy: Option<Proxy>) -> Self {
        self.proxy = proxy;
        self
    }

    /// What it has counted, as Prometheus reads it.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }

    /// Stops it in order.
    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
        drop(self.proxy);
    }

    /// Ends it in the middle of whatever it does.
    pub async fn kill(self) {
        self.task.abort();
        self.task.await.ok();
    }
}
