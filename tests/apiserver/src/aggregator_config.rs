use di_api::AggregatorConfig;
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::Space;

/// Creates an `AggregatorConfig` with port 5000 in the test's namespace.
pub async fn create_aggregator_config(space: &Space) {
    let port = json!({"name": "di-port", "containerPort": 5000});
    let container = json!({"name": "di-container", "image": "none", "ports": [port]});
    let config = json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "AggregatorConfig",
        "metadata": {"name": "aggregator-config"},
        "spec": {"aggregator": {"template": {"spec": {"containers": [container]}}}},
    });
    let api: Api<AggregatorConfig> = Api::namespaced(space.client.clone(), &space.namespace);
    let config = serde_json::from_value(config).unwrap();
    api.create(&PostParams::default(), &config).await.unwrap();
}
