use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use super::Finding;
use crate::Cluster;

/// What is told when the namespace that was named is not there; nothing of it can be examined then.
pub(super) async fn missing(cluster: &Cluster) -> Option<Finding> {
    let name = cluster.namespace().name.as_str();
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    // Who may not look may still work in it.
    match namespaces.get_metadata_opt(name).await {
        Ok(None) => {
            let message = format!("namespace {name} does not exist");
            Some(Finding::error("namespace", message).remedy(format!(
                "pass another by -n, or create it: kubectl create namespace {name}"
            )))
        }
        _ => None,
    }
}
