//! What the rules need to know of Kubernetes' objects: a small part of each, so that caches stay small.

mod ddp;
mod node;
mod pod;
mod service;
mod status;

use di_api::names;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;

pub use ddp::DdpView;
pub use node::NodeView;
pub use pod::{END_NOW, PodView, Stage};
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

/// What we told a pod by this environment variable. Ours stand first; what users set over them changes nothing of the plan.
fn told<'a>(pod: &'a Pod, variable: &str) -> Option<&'a str> {
    let mut containers = pod.spec.as_ref()?.containers.iter();
    let main = containers.find(|container| container.name == names::MAIN_CONTAINER)?;
    let mut all = main.env.iter().flatten();
    all.find(|one| one.name == variable)?.value.as_deref()
}

#[cfg(test)]
mod tests;
