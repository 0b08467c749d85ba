//! A stand-in for Kueue's queue controller, for tests on servers where Kueue does not run.
//!
//! [`QueueController`] admits and preempts Workloads by the same status writes as Kueue.
//! [`QuotaMonitor`] records when pods exceed a quota or run without one, and when a Workload
//! breaks a rule of Kueue's webhooks.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc)] // a helper that fails is a test that fails

mod checks;
mod controller;
mod crds;
mod queue_objects;
mod quota;
mod status_draft;
mod workload;

pub use checks::QuotaMonitor;
pub use controller::QueueController;
pub use crds::{install, objects, uninstall};
pub use queue_objects::{cluster_queue, create, flavor, local_queue, priority_class};
