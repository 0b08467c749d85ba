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

/// Allows no pods; the controller manager, which would fill the status in, is not there.
pub async fn forbid_pods(space: &Space) -> Api<ResourceQuota> {
    let api: Api<ResourceQuota> = Api::namespaced(space.client.clone(), &space.namespace);
    let hard = BTreeMap::from([("pods".to_owned(), Quantity("0".to_owned()))]);
    let quota = ResourceQuota {
        metadata: ObjectMeta {
            name: Some("none".to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(ResourceQuotaSpec {
            hard: Some(hard.clone()),
            ..ResourceQuotaSpec::default()
        }),
        status: None,
    };
    api.create(&PostParams::default(), &quota).await.unwrap();
    let status = ResourceQuotaStatus {
        hard: Some(hard.clone()),
        used: Some(hard),
    };
    let patch = Patch::Merge(json!({ "status": status }));
    api.patch_status("none", &PatchParams::default(), &patch)
        .await
        .unwrap();
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
