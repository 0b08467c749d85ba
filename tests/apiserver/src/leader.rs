use std::{sync::mpsc, thread};

use di_controller::{Lease, LeaseSettings, Metrics, Result, Settings, Term, lead};
use kube::{Client, Config};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// A manager behind a lease, in a thread of its own, all of which can be stopped as a process is by SIGSTOP: its timers, its connections,
/// whatever it does.
pub struct StoppableLeader {
    runtime: Handle,
    term: Term,
    registry: Registry,
    thread: thread::JoinHandle<Result<()>>,
    stopped: Option<mpsc::Sender<()>>,
    // Dropping it ends the manager.
    _quit: oneshot::Sender<()>,
}

impl StoppableLeader {
    /// Starts one; what it makes of jobs and what it makes of the lease may take different ways.
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
                begun.send((Handle::current(), lease.term())).ok();
                let shutdown = async {
                    quits.await.ok();
                };
                let jobs = Client::try_from(jobs).unwrap();
                lead(jobs, &lease, settings, metrics, shutdown).await
            })
        });
        let (runtime, term) = begins.await.unwrap();
        Self {
            runtime,
            term,
            registry,
            thread,
            stopped: None,
            _quit: quit,
        }
    }

    /// Waits until it leads.
    pub async fn leads(&self) {
        self.term.lasting().await;
    }

    /// Stops it in the middle of whatever it does.
    pub async fn stop(&mut self) {
        let (go_on, goes_on) = mpsc::channel();
        let (stopping, stopped) = oneshot::channel();
        self.runtime.spawn(async move {
            stopping.send(()).ok();
            // Until the other end is dropped. Nothing else of the runtime gets its turn, since this is its only thread.
            goes_on.recv().ok();
        });
        stopped.await.unwrap();
        self.stopped = Some(go_on);
    }

    /// What it has counted, as Prometheus reads it.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }

    /// How many writes it has begun by now, whether they have been sent already or not.
    pub fn begun(&self) -> usize {
        let text = self.metrics();
        let counts = text
            .lines()
            .filter(|line| line.contains("writes_total{") && !line.contains("\"get\""))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok());
        counts.sum()
    }

    /// Lets it go on, and waits for its end.
    pub async fn go_on(self) -> Result<()> {
        drop(self.stopped);
        let thread = self.thread;
        let ended = tokio::task::spawn_blocking(|| thread.join().unwrap());
        ended.await.unwrap()
    }
}
