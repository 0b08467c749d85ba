//! A stand-in for the coscheduling plugin of kube-scheduler, for tests on servers where it does not
//! run.
//!
//! [`GangScheduler`] binds the pods of a group together, and all other pods one by one.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc)] // a helper that fails is a test that fails

mod crd;
mod placement;
mod scheduler;

pub use crd::{install, pod_groups};
pub use scheduler::{GangScheduler, SCHEDULER_NAME};
