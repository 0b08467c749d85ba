//! The life cycle of a worker: configured, started, polled, paused, ended.
//!
//! A worker is driven by calls ([`Call`]) that arrive over HTTP ([`handles`]) on the port of its replica. What they lead to is decided by
//! [`Status`], which is pure. [`launch`] runs a [`Worker`] on a thread of its own; what does not poll, but hands things out, keeps the same
//! life cycle by a [`PauseGate`].

mod pause_gate;
mod routes;
mod report;
mod worker_loop;
mod status;

use serde::de::DeserializeOwned;

pub use pause_gate::{InFlightTask, PauseGate};
pub use routes::{LifecycleHandles, lifecycle_routes};
pub use report::{TaskReport, PollResult, Report, Stats};
pub use worker_loop::{WorkerControl, LaunchedWorker, launch_worker};
pub use status::{Call, Status};

use crate::Result;

/// What is configured once, then polled until it is told to end.
pub trait Worker: Send + 'static {
    /// What it is configured with, as JSON where that comes over HTTP.
    type Config: DeserializeOwned + Send;

    /// What the log calls it.
    const NAME: &'static str;

    /// Sets it up: storage, devices, threads. Called again only while it does not run. A configuration that cannot be used is
    /// [`BadConfig`](crate::Error::BadConfig) before anything of it is taken on: the worker is as it was.
    fn configure(&mut self, config: Self::Config) -> Result<()>;

    /// Does one step. Requests are served between two of them, so it should not wait for work: it tells that there was none. After a step that
    /// did something the counts and [`stats`](Self::stats) are logged; others are silent, as there are twenty a second of an idle worker. An
    /// error ends the worker.
    fn poll(&mut self) -> Result<PollResult>;

    /// What is told beside the counts.
    fn stats(&self) -> Stats {
        Stats::new()
    }

    /// It is to run from now on. An error ends the worker, as one of a poll.
    fn start(&mut self) -> Result<()> {
        Ok(())
    }

    /// It is not polled from now on. An error ends the worker.
    fn pause(&mut self) -> Result<()> {
        Ok(())
    }

    /// It is not polled any more. An error is how it ends.
    fn exit(&mut self) -> Result<()> {
        Ok(())
    }
}
