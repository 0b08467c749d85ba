use std::path::Path;

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::{
    Api, Client, CustomResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
    discovery::ApiResource,
    runtime::wait::{await_condition, conditions::is_crd_established},
};
use serde_json::json;

use crate::eventually;

const MANIFESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests");

/// Installs the CRDs and the RBAC rules of the manager and of users.
pub(crate) async fn install(client: Client) {
    let crds = Api::all(client.clone());
    for crd in di_api::crds() {
        crds.create(&PostParams::default(), &crd).await.unwrap();
    }
    for name in [
        di_api::DIJob::crd_name(),
        di_api::AggregatorConfig::crd_name(),
    ] {
        let established = await_condition(crds.clone(), name, is_crd_established());
        established.await.unwrap();
    }
    // The API server serves new kinds with a delay.
    for path in [
        "",
        "/v1alpha1/dijobs",
        "/v1alpha2/dijobs",
        "/v1alpha2/aggregatorconfigs",
    ] {
        let path = format!("/apis/{}{path}", di_api::names::GROUP);
        eventually("our kinds are served", async || {
            let request = http::Request::get(&path).body(Vec::new()).unwrap();
            let answer = client.request_text(request).await;
            let text = answer.map_err(|error| error.to_string())?;
            let versions = ["v1alpha1", "v1alpha2"];
            if versions.iter().any(|version| text.contains(version)) {
                Ok(())
            } else {
                Err(text)
            }
        })
        .await;
    }
    for file in [
        "base/namespace.yaml",
        "rbac/manager/roles.yaml",
        "rbac/users/roles.yaml",
    ] {
        apply(&client, file).await;
    }
    aggregate_roles(client).await;
}

/// Fills the aggregated ClusterRoles of Kubernetes, since no controller manager runs.
async fn aggregate_roles(client: Client) {
    let roles: Api<ClusterRole> = Api::all(client);
    for name in ["view", "edit", "admin"] {
        let selector = format!("rbac.authorization.k8s.io/aggregate-to-{name}=true");
        let selector = ListParams::default().labels(&selector);
        let parts = roles.list(&selector).await.unwrap();
        let permissions = parts.items.into_iter().filter_map(|role| role.rules);
        let permissions: Vec<_> = permissions.flatten().collect();
        let patch = Patch::Merge(json!({ "rules": permissions }));
        let params = PatchParams::default();
        roles.patch(name, &params, &patch).await.unwrap();
    }
}

/// Applies a manifest.
pub(crate) async fn apply(client: &Client, file: &str) {
    apply_changed(client, file, |text| text).await;
}

/// Applies a manifest after `change` has edited its text.
pub(crate) async fn apply_changed(client: &Client, file: &str, change: impl Fn(String) -> String) {
    let text = change(std::fs::read_to_string(Path::new(MANIFESTS).join(file)).unwrap());
    let objects: Vec<DynamicObject> = serde_saphyr::from_multiple(&text).unwrap();
    for object in objects {
        let types = object.types.as_ref().unwrap();
        let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(types).unwrap());
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
            None => Api::all_with(client.clone(), &kind),
        };
        let name = object.metadata.name.as_deref().unwrap();
        let params = PatchParams::apply("tests");
        api.patch(name, &params, &Patch::Apply(&object))
            .await
            .unwrap();
    }
}
