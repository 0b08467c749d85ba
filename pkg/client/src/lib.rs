//! The operations of `kubectl di` on a cluster, as a library.
//!
//! Objects are sent as the server or the manifest has them: fields unknown to this version are
//! kept.

mod cluster;
mod create;
mod credentials;
mod deadline;
mod delete;
mod doctor;
mod error;
mod events;
mod exec;
mod follow;
mod guarded_patch;
mod job_options;
mod jobs;
mod kubeconfig;
mod lifecycle;
mod live_view;
mod logs;
pub mod manifest;
mod names;
mod nervex_convert;
mod orchestrator;
mod overrides;
mod pod_choice;
mod pod_status;
mod port_forward;
mod prepare;
mod proxy;
mod replicas;
mod resource;
mod restart;
mod scale;
mod suspend;
mod trace;
mod versions;
mod wait;
mod warning_header;
mod watch;

pub use cluster::{Cluster, ConnectOptions, Namespace};
pub use create::create_object;
pub use deadline::{Deadline, WaitState, wait_for_job};
pub use delete::{ObjectRef, wait_for_deletion};
pub use doctor::{Finding, FindingState, run_checks};
pub use error::{Error, Rejected, Result};
pub use events::{Event, EventFilter, JobEvents, list_events, watch_events};
pub use exec::{Exec, ExecOptions, exec};
pub use follow::follow_logs;
pub use guarded_patch::DryRun;
pub use job_options::JobOptions;
pub use jobs::{Job, JobEvent, JobList, JobQuery, get_job, job_names, list_jobs, watch_jobs};
pub use lifecycle::{EndState, LifecycleRequest, LifecycleStatus, ReplicaReply, call_replicas};
pub use live_view::LiveView;
pub use logs::{LogLine, LogOptions, LogSelection, LogStream, read_logs, select_log_pods};
pub use manifest::Document;
pub use nervex_convert::convert_nervex;
pub use orchestrator::{
    AppliedObject, ApplyOptions, IMAGE, InstallVariant, Installed, Leftovers, Orchestrator,
    VERSION, WebhookState, apply_object, delete_leftover, find_leftovers, find_orchestrator,
    install_objects, probe_webhooks, wait_for_crd, wait_for_rollout, wait_for_webhooks,
};
pub use pod_choice::{PodChoice, wait_for_started_pod};
pub use port_forward::{find_port, forward_connection, wait_for_pod_end, wait_for_successor};
pub use prepare::{PreparedObject, check_documents, is_own_kind, prepare_objects};
pub use replicas::{
    ContainerExit, Replica, ReplicaList, ReplicaPod, join_plan_with_pods, list_replicas,
};
pub use restart::{
    Progress, RestartCount, RestartSelection, RestartedPod, delete_pod, removing_replicas,
    replicas_ready_state, replicas_to_restart, restart_coordinator, restarted_state,
};
pub use scale::{Counts, ReplicaGroupRef, ScaleRequest, ScaledCount, scale_replicas};
pub use secrecy::SecretString;
pub use suspend::set_suspended;
pub use trace::Trace;
pub use versions::{Versions, get_versions, skew_messages};
pub use wait::{WaitCondition, resumed_state, started_state, succeeded_state, suspended_state};
pub use watch::Change;
