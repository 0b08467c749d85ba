use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Pod, ResourceQuota, ResourceQuotaSpec, ResourceQuotaStatus},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{Space, dry, eventually, template};

/// Allows no pods.
pub async fn forbid_pods(space: &Space) -> Api<ResourceQuota> {
    let api: Api<ResourceQuota> = Api::namespaced(space.client.clone(), &space.namespace);
    let quota = ResourceQuota {
        metadata: ObjectMeta {
            name: Some("none".to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(ResourceQuotaSpec {
            hard: Some(pods(0)),
            ..ResourceQuotaSpec::default()
        }),
        status: None,
    };
    api.create(&PostParams::default(), &quota).await.unwrap();
    tell_quota(&api, 0, 0).await;
    let mut pod = template();
    pod["metadata"] = json!({"name": "refused"});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    eventually("the quota is in force", async || {
        match space.pods().create(&dry(), &pod).await {
            Err(error) if error.to_string().contains("exceeded quota") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    api
}

/// Says how many pods are allowed and how many there are, as the controller manager would, which is not there.
pub async fn tell_quota(quota: &Api<ResourceQuota>, hard: usize, used: usize) {
    let status = ResourceQuotaStatus {
        hard: Some(pods(hard)),
        used: Some(pods(used)),
    };
    let patch = Patch::Merge(json!({ "status": status }));
    let params = PatchParams::default();
    quota.patch_status("none", &params, &patch).await.unwrap();
}

fn pods(number: usize) -> BTreeMap<String, Quantity> {
    BTreeMap::from([("pods".to_owned(), Quantity(number.to_string()))])
}
