//! The reconciler of DIJobs. It observes the cluster, computes a pure `step`, and applies its
//! actions.

mod api;
mod apply;
mod backoff;
mod context;
mod debounce;
mod deferred_creates;
mod driver;
mod error;
mod error_report;
mod event_queue;
mod events;
mod job_state;
mod leader_election;
mod lease;
mod metrics;
mod observe;
mod reconcile;
mod status_change;
mod status_writer;
mod step;
mod stored_job;
mod undecodable;

use std::time::Duration;

use di_plan::BuildSettings;
use jiff::Timestamp;

pub use driver::run;
pub use error::{Error, Result};
pub use leader_election::run_with_leader_election;
pub use lease::{LeaderToken, Lease, LeaseSettings};
pub use metrics::Metrics;
pub(crate) use step::{Action, EventRecord, Observed, ReconcileError, Step};

/// Settings of the reconciler.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Settings that are built into pods, such as the address of the replica endpoint.
    pub build: BuildSettings,
    /// Maximum number of jobs that are reconciled at the same time.
    pub concurrency: u16,
    /// Maximum number of concurrent writes to the API server, over all jobs.
    pub writes_in_flight: usize,
    /// Timeout of one request to the API server.
    pub call_timeout: Duration,
    /// Instance name in published events, usually the name of the pod.
    pub identity: String,
    /// Token that delays writes without the lease. `None` without leader election.
    pub leader_token: Option<LeaderToken>,
    /// Returns the current time.
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
            leader_token: None,
            clock: Timestamp::now,
        }
    }
}
