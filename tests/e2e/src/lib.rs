//! Helpers of the end-to-end tests. The tests need a cluster (KUBECONFIG) with the orchestrator
//! installed. kind itself runs in CI only. See docs/decisions/0005.

#![allow(clippy::missing_panics_doc)] // helpers of tests fail as tests do

mod account;
mod audit;
mod di_engine;
mod doc_commands;
mod endpoint;
mod eventually;
mod jobs;
mod namespace;
mod phases;
mod plugin;
mod training;

pub use account::create_account;
pub use audit::{Audit, Call};
pub use di_engine::{
    ClientState, Coordinator, Workload, create_programs, observe, post_command, set_node_gpus,
};
pub use doc_commands::{Block, Rule, Step, blocks, is_as_shown, steps};
pub use endpoint::{Endpoint, Reply, is_ready, send_http};
pub use eventually::{eventually, eventually_within};
pub use jobs::{
    MISNAMED_MESSAGE, WORKER_IMAGE, container, exec, exec_command, idle_job, is_running, job, logs,
    logs_so_far, main_container, misnamed_job, owned_pods, owned_services, pod_spec, pod_template,
    status, wait_for_webhook_rejection,
};
pub use namespace::{Namespace, client, dry_run};
pub use phases::{Phases, wait_for_phase};
pub use plugin::{Output, kubectl, kubectl_di, run_kubectl};
pub use training::{FOREVER, ReplicaStates, is_solved, replica_states, samples, training};

/// Namespace of the orchestrator.
pub const SYSTEM: &str = di_api::names::SYSTEM_NAMESPACE;
