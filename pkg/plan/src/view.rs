//! What the rules need to know of Kubernetes' objects: a small part of each, so that caches stay small.

mod ddp;
mod node;
mod pod;
mod service;
mod status;

use kube::Resource;

pub use ddp::DdpView;
pub use node::NodeView;
pub use pod::{PodView, Stage};
pub use service::ServiceView;
pub use status::{End, PodPhase, RestartPolicy};

fn controlling_job<K: Resource>(object: &K) -> Option<String> {
    object
        .meta()
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true) && owner.kind == "DIJob")
        .map(|owner| owner.uid.clone())
}

#[cfg(test)]
mod tests;
