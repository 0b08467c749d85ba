//! Views of Kubernetes objects: the small part of each that this crate needs, to keep caches small.

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
pub use pod::{IMMEDIATE_DEADLINE_SECONDS, PodView, Stage};
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

/// The value of an environment variable that the orchestrator set in the main container.
///
/// The orchestrator's variables come first in the list, so an override by the user is ignored.
fn env_value<'a>(pod: &'a Pod, variable: &str) -> Option<&'a str> {
    let mut containers = pod.spec.as_ref()?.containers.iter();
    let main = containers.find(|container| container.name == names::MAIN_CONTAINER)?;
    let mut variables = main.env.iter().flatten();
    variables.find(|env| env.name == variable)?.value.as_deref()
}

#[cfg(test)]
mod tests;
