use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::Space;

/// A node that has GPUs, and nothing that runs there.
#[derive(Clone, Debug)]
pub struct GpuNode {
    /// Its name.
    pub name: String,
    /// Its GPUs.
    pub gpus: u32,
    /// Whether it is cordoned.
    pub cordoned: bool,
    /// Key of a taint that keeps pods away, unless they tolerate it.
    pub taint: Option<&'static str>,
}

/// Makes nodes. They are seen by all tests, which share the server.
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
        // The server has new nodes tainted as not ready, until somebody says otherwise.
        let taints = node
            .taint
            .map(|key| json!([{"key": key, "effect": "NoSchedule"}]));
        let spec = json!({"spec": {"unschedulable": node.cordoned, "taints": taints}});
        api.patch(&node.name, &params, &Patch::Merge(spec))
            .await
            .unwrap();
    }
}

/// The nodes that all tests take for granted: two of 4 GPUs, and one of 8; most have 2, but these are cordoned.
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
