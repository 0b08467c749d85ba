use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use super::finding::Finding;
use crate::Cluster;

/// Returns a finding if the selected namespace does not exist.
pub(super) async fn find_missing(cluster: &Cluster) -> Option<Finding> {
    let name = cluster.namespace().name.as_str();
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    // Without permission to read the namespace, the user may still have permissions in it.
    match namespaces.get_metadata_opt(name).await {
        Ok(None) => {
            let message = format!("namespace {name} does not exist");
            Some(Finding::error("namespace", message).with_remedy(format!(
                "name another one with -n, or create it: kubectl create namespace {name}"
            )))
        }
        _ => None,
    }
}
