//! Replicas of a job and their pods: list, scale, restart, exec and port-forward.

pub(crate) mod exec;
pub(crate) mod list;
mod plan_entry;
pub(crate) mod pod_choice;
pub(crate) mod pod_status;
pub(crate) mod port_forward;
pub(crate) mod restart;
pub(crate) mod scale;
mod scale_draft;
pub(crate) mod scale_request;
