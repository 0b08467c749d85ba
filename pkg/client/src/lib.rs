//! What kubectl di does to a cluster, as a library.
//!
//! Objects are passed on as the server or the manifest has them: a field that this version does not know is never lost.

mod candidates;
mod cluster;
mod create;
mod delete;
mod doctor;
mod error;
mod follow;
mod jobs;
mod logs;
pub mod manifest;
mod orchestrator;
mod overrides;
mod pod_status;
mod prepare;
mod replicas;
mod resource;
mod scale;
mod secret;
mod trace;
mod versions;
mod warnings;

pub use candidates::{job_names, namespace_names, replica_names};
pub use cluster::{Choices, Cluster, ConnectOptions, Namespace};
pub use create::create;
pub use delete::{Cascade, Target, await_deletion, delete};
pub use doctor::{Finding, State, examine};
pub use error::{Error, Rejected, Result};
pub use follow::follow;
pub use jobs::{Job, JobEvent, JobList, JobQuery, job, jobs, watch_jobs};
pub use logs::{LogLine, LogOptions, LogStream, Which, log_pods, logs};
pub use manifest::Document;
pub use orchestrator::{
    Apply, Flavour, IMAGE, Installed, Orchestrator, Probe, Remains, VERSION, apply, await_answers,
    await_definition, await_rollout, installed, objects, probe, remains, remove,
};
pub use prepare::{Check, Ready, prepare};
pub use replicas::{Replica, ReplicaPod, replicas, replicas_of};
pub use scale::{Counts, Scaled, await_scaled, scale};
pub use secret::Secret;
pub use trace::Trace;
pub use versions::{Versions, skew, versions};
