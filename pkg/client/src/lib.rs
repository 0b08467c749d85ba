//! The operations of `kubectl di` on a cluster, as a library.
//!
//! Objects are sent as the server or the manifest has them: fields unknown to this version are
//! kept.

mod connection;
mod doctor;
mod error;
mod install;
mod jobs;
mod lifecycle;
mod logs;
mod nodes;
mod queue;
mod replicas;
mod yaml;

pub use connection::{
    cluster::Cluster,
    deadline::Deadline,
    options::{ConnectOptions, Namespace},
    watch::Change,
};
pub use di_plan::{GangScheduler, GangSetting};
pub use doctor::{
    access::{Permission, find_refused_permissions},
    finding::{Finding, FindingState},
    run_checks,
};
pub use error::{Error, Rejected, Result};
pub use install::{
    apply::{AppliedObject, ApplyOptions, apply_object},
    helm::HelmRelease,
    install_objects::{
        IMAGE, InstallOptions, InstallVariant, VERSION, gang_objects, gang_permissions,
        install_objects, kueue_objects,
    },
    installed::{Installed, Orchestrator, find_orchestrator, has_kueue_permissions},
    leftovers::{Leftovers, delete_leftover, find_leftovers},
    rollout::{wait_for_crd, wait_for_rollout, wait_for_webhooks},
    versions::{Versions, get_versions, skew_messages},
    webhook_probe::{WebhookState, probe_webhooks},
};
pub use jobs::{
    convert::convert_document,
    create::create_object,
    deletion::{ObjectRef, delete_job, wait_for_deletion},
    events::{Event, EventFilter, JobEvents, list_events, watch_events},
    guarded_patch::DryRun,
    job::{Job, JobEvent, JobList, JobQuery, get_job, job_names, list_jobs, watch_jobs},
    job_options::JobOptions,
    live_view::LiveView,
    manifest::{self, Document},
    prepare::{PreparedObject, check_documents, is_own_kind, prepare_objects},
    suspend::set_suspended,
    wait::{WaitState, describe_state, describe_wait, wait_for_job},
    wait_condition::{
        WaitCondition, resumed_state, started_state, succeeded_state, suspended_state,
    },
};
pub use lifecycle::{
    EndState, LifecycleRequest, ReplicaReply, SampledStatus, call_replicas,
    response::LifecycleStatus, sample_status,
};
pub use logs::{
    follow::follow_logs,
    read::{LogLine, LogOptions, LogSelection, LogStream, read_logs, select_log_pods},
};
pub use nodes::{NodeGpus, NodeList, NodeUser, list_nodes};
pub use queue::{QueueRow, WaitingReplicas, list_queue, read_queue_position};
pub use replicas::{
    exec::{Exec, ExecOptions, exec},
    list::{ContainerExit, Replica, ReplicaList, ReplicaPod, join_plan_with_pods, list_replicas},
    pod_choice::{PodChoice, wait_for_started_pod},
    port_forward::{find_port, forward_connection, wait_for_pod_end, wait_for_successor},
    restart::{
        Progress, RestartCount, RestartSelection, RestartedPod, delete_pod, removing_replicas,
        replicas_ready_state, replicas_to_restart, restart_coordinator, restarted_state,
    },
    scale::scale_replicas,
    scale_request::{Counts, ReplicaGroupRef, ScaleRequest, ScaledCount},
};
pub use secrecy::SecretString;
