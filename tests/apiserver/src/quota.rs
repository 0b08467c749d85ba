use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Pod, ResourceQuota, ResourceQuotaSpec, ResourceQuotaStatus},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{Space, dry_run, eventually, template};

const PODS: &str = "pods";
/// The quota resource of pods with GPUs.
pub const GPUS: &str = "requests.nvidia.com/gpu";

/// Creates a quota of zero pods.
pub async fn forbid_pods(space: &Space) -> Api<ResourceQuota> {
    forbid_resource(space, PODS, template()).await
}

/// Creates a quota of zero for a resource, and waits until this pod is rejected.
pub async fn forbid_resource(space: &Space, resource: &str, mut pod: Value) -> Api<ResourceQuota> {
    let api: Api<ResourceQuota> = Api::namespaced(space.client.clone(), &space.namespace);
    let quota = ResourceQuota {
        metadata: ObjectMeta {
            name: Some("none".to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(ResourceQuotaSpec {
            hard: Some(quantities(resource, 0)),
            ..ResourceQuotaSpec::default()
        }),
        status: None,
    };
    api.create(&PostParams::default(), &quota).await.unwrap();
    set_quota(&api, resource, 0, 0).await;
    pod["metadata"] = json!({"name": "refused"});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    eventually("the quota is in force", async || {
        match space.pods().create(&dry_run(), &pod).await {
            Err(error) if error.to_string().contains("exceeded quota") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    api
}

/// Sets the limit and the usage in the quota status, since no controller manager runs.
pub async fn set_pod_quota(quota: &Api<ResourceQuota>, hard: usize, used: usize) {
    set_quota(quota, PODS, hard, used).await;
}

async fn set_quota(quota: &Api<ResourceQuota>, resource: &str, hard: usize, used: usize) {
    let status = ResourceQuotaStatus {
        hard: Some(quantities(resource, hard)),
        used: Some(quantities(resource, used)),
    };
    let patch = Patch::Merge(json!({ "status": status }));
    let params = PatchParams::default();
    quota.patch_status("none", &params, &patch).await.unwrap();
}

fn quantities(resource: &str, number: usize) -> BTreeMap<String, Quantity> {
    BTreeMap::from([(resource.to_owned(), Quantity(number.to_string()))])
}
