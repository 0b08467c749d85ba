//! What kubectl di does to a cluster, as a library.
//!
//! Objects are passed on as the server or the manifest has them: a field that this version does not know is never lost.

mod cluster;
mod create;
mod delete;
mod error;
mod events;
mod exec;
mod follow;
mod jobs;
mod live;
mod logs;
pub mod manifest;
mod pod_status;
mod port_forward;
mod prepare;
mod replicas;
mod resource;
mod scale;
mod target;
mod versions;
mod warnings;
mod watch;

pub use cluster::{Cluster, ConnectOptions, Namespace};
pub use create::create;
pub use delete::{Cascade, Target, await_deletion, delete};
pub use error::{Error, Rejected, Result};
pub use events::{Event, JobEvents, events, watch_events};
pub use exec::{Exec, ExecOptions, exec};
pub use follow::follow;
pub use jobs::{Job, JobEvent, JobList, JobQuery, job, jobs, watch_jobs};
pub use live::Live;
pub use logs::{LogLine, LogOptions, LogStream, Which, log_pods, logs};
pub use manifest::Document;
pub use port_forward::{await_loss, di_port, forward};
pub use prepare::{Check, Ready, prepare};
pub use replicas::{Replica, ReplicaPod, replicas, replicas_of};
pub use scale::{Counts, Scaled, await_scaled, scale};
pub use target::{Choice, replica_pod};
pub use versions::{Orchestrator, Versions, versions};
pub use watch::Change;
