//! The life cycle of a worker: configured, started, polled, paused, ended.
//!
//! HTTP calls ([`Call`], served by [`lifecycle_routes`]) on the port of the replica drive a worker.
//! [`Status`] is the pure state machine. [`launch_worker`] runs a [`Worker`] on its own thread. A
//! process that hands out tasks instead of polling uses a [`PauseGate`].
//!
//! See docs/decisions/0019.

pub mod mapping_thread;
pub(crate) mod pause_gate;
pub(crate) mod report;
pub(crate) mod routes;
pub(crate) mod status;
pub(crate) mod worker;
pub(crate) mod worker_loop;

pub use pause_gate::{InFlightTask, PauseGate};
pub use report::{PollResult, Report, Stats, TaskReport};
pub use routes::{LifecycleHandles, lifecycle_routes};
pub use status::{Call, Status};
pub use worker::Worker;
pub use worker_loop::{LaunchedWorker, WorkerControl, launch_worker};
