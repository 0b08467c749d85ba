//! What the end-to-end tests share. They run against whatever cluster KUBECONFIG names, with the orchestrator installed.

#![allow(clippy::missing_panics_doc)] // helpers of tests fail as tests do

mod audit;
mod endpoint;
mod eventually;
mod jobs;
mod namespace;

pub use audit::{Audit, Call};
pub use endpoint::{Endpoint, Reply};
pub use eventually::{eventually, within};
pub use jobs::{
    Phases, container, exec, is_running, job, logs, misnamed, owned_pods, owned_services, pod,
    status,
};
pub use namespace::{Namespace, client};

/// Namespace of the orchestrator.
pub const SYSTEM: &str = di_api::names::SYSTEM_NAMESPACE;
