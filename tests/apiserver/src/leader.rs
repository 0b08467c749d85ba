use std::{sync::mpsc, thread};

use di_controller::{
    LeaderToken, Lease, LeaseSettings, Metrics, Result, Settings, run_with_leader_election,
};
use kube::{Client, Config};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// A manager with leader election in its own thread. It can be paused like a process by SIGSTOP:
/// timers, connections and all tasks.
pub struct PausableLeader {
    runtime: Handle,
    term: LeaderToken,
    registry: Registry,
    thread: thread::JoinHandle<Result<()>>,
    paused: Option<mpsc::Sender<()>>,
    // Dropping it stops the manager.
    _quit: oneshot::Sender<()>,
}

impl PausableLeader {
    /// Starts a manager; requests for jobs and for the lease may use different paths to the API
    /// server.
    pub async fn start(
        jobs: Config,
        leases: Config,
        lease: LeaseSettings,
        settings: Settings,
    ) -> Self {
        let (quit, quits) = oneshot::channel::<()>();
        let (begun, begins) = oneshot::channel();
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let lease = Lease::new(Client::try_from(leases).unwrap(), lease);
                begun.send((Handle::current(), lease.leader_token())).ok();
                let shutdown = async {
                    quits.await.ok();
                };
                let jobs = Client::try_from(jobs).unwrap();
                run_with_leader_election(jobs, &lease, settings, metrics, shutdown).await
            })
        });
        let (runtime, term) = begins.await.unwrap();
        Self {
            runtime,
            term,
            registry,
            thread,
            paused: None,
            _quit: quit,
        }
    }

    /// Waits until the manager is the leader.
    pub async fn wait_for_leadership(&self) {
        self.term.wait_until_valid().await;
    }

    /// Pauses the manager immediately.
    pub async fn pause(&mut self) {
        let (resume, resumed) = mpsc::channel();
        let (pausing, paused) = oneshot::channel();
        self.runtime.spawn(async move {
            pausing.send(()).ok();
            // Block until the other end is dropped. No other task runs, since this is the only
            // thread of the runtime.
            resumed.recv().ok();
        });
        paused.await.unwrap();
        self.paused = Some(resume);
    }

    /// The metrics in Prometheus text format.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }

    /// Number of writes that the manager has started, including unsent ones.
    pub fn started_writes(&self) -> usize {
        let text = self.metrics();
        let counts = text
            .lines()
            .filter(|line| line.contains("writes_total{") && !line.contains("\"get\""))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok());
        counts.sum()
    }

    /// Resumes the manager and waits until it exits.
    pub async fn resume(self) -> Result<()> {
        drop(self.paused);
        let thread = self.thread;
        let ended = tokio::task::spawn_blocking(|| thread.join().unwrap());
        ended.await.unwrap()
    }
}
