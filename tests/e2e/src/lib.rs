//! What the end-to-end tests share. They run against whatever cluster KUBECONFIG names, with the orchestrator installed.

#![allow(clippy::missing_panics_doc)] // helpers of tests fail as tests do

mod account;
mod audit;
mod di_engine;
mod endpoint;
mod eventually;
mod guide;
mod jobs;
mod namespace;
mod phases;
mod plugin;
mod training;

pub use account::account;
pub use audit::{Audit, Call};
pub use di_engine::{Coordinator, Seen, Workload, look, nodes_have_gpus, order};
pub use endpoint::{Endpoint, Reply, http, is_ready};
pub use eventually::{eventually, within};
pub use guide::{Block, Rule, Step, blocks, is_as_shown, steps};
pub use jobs::{
    MISNAMED, container, enter, exec, held, is_refused_when_misnamed, is_running, job, logs,
    logs_so_far, main_of, misnamed, owned_pods, owned_services, pod, status,
};
pub use namespace::{Namespace, client, dry};
pub use phases::{Phases, reaches};
pub use plugin::{Output, di};
pub use training::{FOREVER, Told, is_solved, samples, told, training};

/// Namespace of the orchestrator.
pub const SYSTEM: &str = di_api::names::SYSTEM_NAMESPACE;
