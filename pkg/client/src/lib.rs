//! What kubectl di does to a cluster, as a library.
//!
//! Objects are passed on as the server or the manifest has them: a field that this version does not know is never lost.

mod candidates;
mod cluster;
mod create;
mod credentials;
mod delete;
mod doctor;
mod edit;
mod error;
mod events;
mod exec;
mod fetch;
mod follow;
mod generate;
mod jobs;
mod jsonpath;
mod kubeconfig;
mod life;
mod live;
mod logs;
pub mod manifest;
mod nervex;
mod orchestrator;
mod overrides;
mod pod_status;
mod port_forward;
mod prepare;
mod proxy;
mod replicas;
mod resource;
mod restart;
mod scale;
mod segment;
mod suspend;
mod target;
mod trace;
mod until;
mod versions;
mod wait;
mod warnings;
mod watch;

pub use candidates::{container_names, group_names, job_names, namespace_names, replica_names};
pub use cluster::{Choices, Cluster, ConnectOptions, Namespace};
pub use create::create;
pub use delete::{Cascade, Deletion, Target, await_deletion, delete};
pub use doctor::{Finding, State, examine};
pub use edit::DryRun;
pub use error::{Error, Rejected, Result};
pub use events::{Event, JobEvents, Whose, events, watch_events};
pub use exec::{Exec, ExecOptions, exec};
pub use follow::follow;
pub use generate::Outline;
pub use jobs::{Job, JobEvent, JobList, JobQuery, job, jobs, watch_jobs};
pub use jsonpath::{Path, Template};
pub use life::{Called, Ended, Handle, Life, call_replicas};
pub use live::Live;
pub use logs::{LogLine, LogOptions, LogStream, Which, log_pods, logs};
pub use manifest::Document;
pub use nervex::convert;
pub use orchestrator::{
    Applied, Apply, Flavour, IMAGE, Installed, Orchestrator, Probe, Remains, VERSION, apply,
    await_answers, await_definition, await_rollout, installed, objects, probe, remains, remove,
};
pub use port_forward::{await_loss, forward, port_named, successor};
pub use prepare::{Check, Ready, check, is_ours, prepare};
pub use replicas::{Exit, Known, Replica, ReplicaPod, replicas, replicas_of};
pub use restart::{
    HowMany, Progress, Restarted, WhichReplicas, delete_pod, has_restarted, leaving,
    replicas_are_ready, replicas_to_restart, restart,
};
pub use scale::{Bucket, Counts, Scale, Scaled, scale};
pub use secrecy::SecretString;
pub use suspend::suspend;
pub use target::{Choice, started_pod};
pub use trace::Trace;
pub use until::{Deadline, Outlook, until};
pub use versions::{Versions, skew, versions};
pub use wait::{For, has_resumed, has_started, has_succeeded, is_at_rest};
pub use watch::Change;
