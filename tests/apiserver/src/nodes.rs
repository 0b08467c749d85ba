use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::Space;

/// A node with GPUs and without pods.
#[derive(Clone, Debug)]
pub struct GpuNode {
    /// Name of the node.
    pub name: String,
    /// Number of GPUs.
    pub gpus: u32,
    /// Whether the node is cordoned.
    pub cordoned: bool,
    /// Key of a `NoSchedule` taint.
    pub taint: Option<&'static str>,
}

/// Creates nodes. All tests share the server and see them.
pub async fn make_nodes(space: &Space, nodes: &[GpuNode]) {
    let api: Api<Node> = Api::all(space.client.clone());
    for node in nodes {
        let object = serde_json::from_value(json!({"metadata": {"name": node.name}})).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
        let gpus = json!({"nvidia.com/gpu": node.gpus.to_string()});
        let status = json!({"status": {
            "capacity": gpus, "allocatable": gpus, "conditions": [{"type": "Ready", "status": "True"}],
        }});
        let params = PatchParams::default();
        let status = Patch::Strategic(status);
        api.patch_status(&node.name, &params, &status)
            .await
            .unwrap();
        // The API server taints new nodes as not ready, so replace the taints.
        let taints = node
            .taint
            .map(|key| json!([{"key": key, "effect": "NoSchedule"}]));
        let spec = json!({"spec": {"unschedulable": node.cordoned, "taints": taints}});
        api.patch(&node.name, &params, &Patch::Merge(spec))
            .await
            .unwrap();
    }
}

/// Creates the nodes that all tests use: two with 4 GPUs, one with 8, and cordoned ones with 2.
pub async fn common_nodes(space: &Space) {
    static MADE: OnceCell<()> = OnceCell::const_new();
    MADE.get_or_init(async || {
        let sizes = [4, 8, 4, 2, 2, 2];
        let nodes = sizes.iter().enumerate().map(|(i, gpus)| GpuNode {
            name: format!("gpu-{i}"),
            gpus: *gpus,
            cordoned: *gpus == 2,
            taint: None,
        });
        make_nodes(space, &nodes.collect::<Vec<_>>()).await;
    })
    .await;
}
