//! Views of Kubernetes objects: the small part of each that this crate needs, to keep caches small.

mod crash_loop;
mod ddp;
mod env;
mod group;
mod node;
mod owner;
mod pod;
mod service;
mod status;
mod unit;
mod workload;

pub use crash_loop::CrashLoop;
pub use ddp::DdpView;
pub use group::GroupView;
pub use node::NodeView;
pub use owner::controlling_job;
pub use pod::{IMMEDIATE_DEADLINE_SECONDS, PodView, Stage};
pub use service::ServiceView;
pub use status::{End, PodPhase, RestartPolicy};
pub use workload::{
    Admission, PodSetAssignment, PodSetSummary, SUMMARY_ANNOTATION, WorkloadSummary, WorkloadView,
};

#[cfg(test)]
mod tests;
