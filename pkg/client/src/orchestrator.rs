//! The orchestrator itself: what it is made of, whether it is there, how it comes and goes.

mod apply;
mod installed;
mod manifests;
mod probe;
mod remove;
mod rollout;

pub use apply::{Applied, Apply, apply};
pub use installed::{Installed, Orchestrator, installed};
pub use manifests::{Flavour, IMAGE, VERSION, objects};
pub use probe::{Probe, probe};
pub use remove::{Remains, remains, remove};
pub use rollout::{await_answers, await_definition, await_rollout};

use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use serde_json::Value;

/// Where the server keeps an object, and in which namespace.
fn place(object: &Value) -> (ApiResource, Option<&str>) {
    let text = |at: &Value| at.as_str().unwrap_or_default().to_owned();
    let types = TypeMeta {
        api_version: text(&object["apiVersion"]),
        kind: text(&object["kind"]),
    };
    let kind = GroupVersionKind::try_from(types);
    let kind = kind.unwrap_or_else(|_| GroupVersionKind::gvk("", "", ""));
    let namespace = object["metadata"]["namespace"].as_str();
    (ApiResource::from_gvk(&kind), namespace)
}
