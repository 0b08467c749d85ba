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
mod settings;
mod status_change;
mod status_writer;
mod step;
mod stored_job;
mod undecodable;

pub use driver::run;
pub use error::{Error, Result};
pub use leader_election::run_with_leader_election;
pub use lease::{LeaderToken, Lease, LeaseSettings};
pub use metrics::Metrics;
pub use settings::Settings;
pub(crate) use step::{
    Action, EventRecord, Observed, ObservedGang, ObservedQueue, ReconcileError, Step,
};
