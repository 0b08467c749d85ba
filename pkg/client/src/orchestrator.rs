//! Installs, upgrades, inspects and uninstalls the orchestrator.

mod apply;
mod install_objects;
mod installed;
mod leftovers;
mod rollout;
mod webhook_probe;

pub use apply::{AppliedObject, ApplyOptions, apply_object};
pub use install_objects::{IMAGE, InstallVariant, VERSION, install_objects};
pub use installed::{Installed, Orchestrator, find_orchestrator};
pub use leftovers::{Leftovers, delete_leftover, find_leftovers};
pub use rollout::{wait_for_crd, wait_for_rollout, wait_for_webhooks};
pub use webhook_probe::{WebhookState, probe_webhooks};

use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use serde_json::Value;

/// The resource and namespace of an object.
fn resource_of(object: &Value) -> (ApiResource, Option<&str>) {
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
