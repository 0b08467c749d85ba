//! The reconciler of DIJobs: observe, a pure step, act.

mod act;
mod backoff;
mod context;
mod driver;
mod error;
mod lead;
mod lease;
mod metrics;
mod outbox;
mod raw;
mod reconcile;
mod status;
mod step;
mod unsent;

use std::time::Duration;

use di_plan::BuildSettings;
use jiff::Timestamp;

pub use driver::run;
pub use error::{Error, Result};
pub use lead::lead;
pub use lease::{Lease, LeaseSettings, Term};
pub use metrics::Metrics;
pub use step::{Action, Note, Observed, Step, Trouble, step};

/// How the reconciler works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What pods are told.
    pub build: BuildSettings,
    /// How many jobs are reconciled at the same time.
    pub concurrency: u16,
    /// How many writes are under way at the same time, over all jobs.
    pub writes_in_flight: usize,
    /// Deadline of one call to the API server.
    pub call_timeout: Duration,
    /// Name under which events are published, usually the pod's.
    pub identity: String,
    /// Writes wait while this does not last; nothing where no other process reconciles.
    pub term: Option<Term>,
    /// Where the time comes from.
    pub clock: fn() -> Timestamp,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            build: BuildSettings::default(),
            concurrency: 16,
            writes_in_flight: 32,
            call_timeout: Duration::from_secs(10),
            identity: "di-orchestrator".to_owned(),
            term: None,
            clock: Timestamp::now,
        }
    }
}
