use std::time::{Duration, Instant};

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::Value;
use tokio::time::sleep;

const CRD: &str = include_str!("../crd.yaml");
const GROUP: &str = "scheduling.x-k8s.io";
const VERSION: &str = "v1alpha1";
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Much longer than an API server needs, so that only a bug reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Installs the CRD of PodGroups, and waits until it is served.
pub async fn install(client: &Client) {
    let crd: DynamicObject = serde_saphyr::from_str(CRD).unwrap();
    let kind = GroupVersionKind::try_from(crd.types.as_ref().unwrap()).unwrap();
    let crds: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let params = PatchParams::apply("gang-stand-in").force();
    let name = crd.metadata.name.clone().unwrap();
    crds.patch(&name, &params, &Patch::Apply(&crd))
        .await
        .unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while !is_served(client).await {
        assert!(Instant::now() < deadline, "not served within {TIMEOUT:?}");
        sleep(POLL_INTERVAL).await;
    }
}

/// Whether discovery lists PodGroups and their list can be read. The API server updates the two
/// separately.
async fn is_served(client: &Client) -> bool {
    let is_listed = async |path: String, kind: &str| {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let document: Value = client.request(request).await.unwrap_or_default();
        document.to_string().contains(kind)
    };
    is_listed(format!("/apis/{GROUP}"), VERSION).await
        && is_listed(format!("/apis/{GROUP}/{VERSION}"), "PodGroup").await
        && pod_groups(client, "default")
            .list(&ListParams::default())
            .await
            .is_ok()
}

/// The kind PodGroup.
pub(crate) fn pod_group_kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, "PodGroup"))
}

/// Returns the API of the PodGroups of a namespace.
pub fn pod_groups(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &pod_group_kind())
}
