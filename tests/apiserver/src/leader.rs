use std::{sync::mpsc, thread};

use di_controller::{Lease, LeaseSettings, Metrics, Result, Settings, Term, lead};
use kube::{Client, Config};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// A manager behind a lease, in a thread of its own, all of which can be paused as a process is by SIGSTOP: its timers, its connections,
/// whatever it does.
pub struct PausableLeader {
    runtime: Handle,
    term: Term,
    registry: Registry,
    thread: thread::JoinHandle<Result<()>>,
    paused: Option<mpsc::Sender<()>>,
    // Dropping it ends the manager.
    _quit: oneshot::Sender<()>,
}

impl PausableLeader {
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
            paused: None,
            _quit: quit,
        }
    }

    /// Waits until it leads.
    pub async fn wait_for_leadership(&self) {
        self.term.lasting().await;
    }

    /// Stops it in the middle of whatever it does.
    pub async fn pause(&mut self) {
        let (resume, resumed) = mpsc::channel();
        let (pausing, paused) = oneshot::channel();
        self.runtime.spawn(async move {
            pausing.send(()).ok();
            // Until the other end is dropped. Nothing else of the runtime gets its turn, since this is its only thread.
            resumed.recv().ok();
        });
        paused.await.unwrap();
        self.paused = Some(resume);
    }

    /// What it has counted, as Prometheus reads it.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }

    /// How many writes it has begun by now, whether they have been sent already or not.
    pub fn started_writes(&self) -> usize {
        let text = self.metrics();
        let counts = text
            .lines()
            .filter(|line| line.contains("writes_total{") && !line.contains("\"get\""))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok());
        counts.sum()
    }

    /// Lets it go on, and waits for its end.
    pub async fn resume(self) -> Result<()> {
        drop(self.paused);
        let thread = self.thread;
        let ended = tokio::task::spawn_blocking(|| thread.join().unwrap());
        ended.await.unwrap()
    }
}
