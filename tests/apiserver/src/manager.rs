use di_controller::{Metrics, Result, Settings, run};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::{sync::oneshot, task::JoinHandle};

/// A reconciler of this process.
pub struct Manager {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
}

impl Manager {
    /// Starts one.
    pub fn start(client: Client) -> Self {
        Self::start_with(client, Settings::default())
    }

    /// Starts one that works as said.
    pub fn start_with(client: Client, settings: Settings) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let metrics = Metrics::new(&mut Registry::default());
        let shutdown = async {
            stopped.await.ok();
        };
        let task = tokio::spawn(run(client, settings, metrics, shutdown));
        Self { stop, task }
    }

    /// Stops it in order.
    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }

    /// Ends it in the middle of whatever it does.
    pub async fn kill(self) {
        self.task.abort();
        self.task.await.ok();
    }
}
