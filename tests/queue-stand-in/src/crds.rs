//! Minimal CRDs of Kueue, written for tests.

use std::time::{Duration, Instant};

use di_api::names::kueue::GROUP;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
    runtime::wait::{await_condition, conditions::is_crd_established},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::workload::{MAX_POD_SETS, items};

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Much longer than an API server needs, so that only a bug reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

struct Kind {
    name: &'static str,
    plural: &'static str,
    scope: &'static str,
}

static KINDS: [Kind; 5] = [
    kind("Workload", "workloads", "Namespaced"),
    kind("LocalQueue", "localqueues", "Namespaced"),
    kind("ClusterQueue", "clusterqueues", "Cluster"),
    kind("ResourceFlavor", "resourceflavors", "Cluster"),
    kind(
        "WorkloadPriorityClass",
        "workloadpriorityclasses",
        "Cluster",
    ),
];

const fn kind(name: &'static str, plural: &'static str, scope: &'static str) -> Kind {
    Kind {
        name,
        plural,
        scope,
    }
}

impl Kind {
    fn crd_name(&self) -> String {
        format!("{}.{GROUP}", self.plural)
    }

    fn crd(&self, version: &str) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.crd_name()},
            "spec": {
                "group": GROUP,
                "scope": self.scope,
                "names": {
                    "kind": self.name, "listKind": format!("{}List", self.name),
                    "plural": self.plural, "singular": self.name.to_lowercase(),
                },
                "versions": [{
                    "name": version, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": schema()},
                    "subresources": {"status": {}},
                }],
            },
        })
    }
}

/// Schema of all kinds. The status is not open: Kubernetes 1.20 does not merge lists below objects
/// that preserve unknown fields, and Kueue has several field managers. See docs/decisions/0032.
fn schema() -> Value {
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let open_list = json!({"type": "array", "items": open});
    let mut pod_sets = list_by("name", &json!({"name": text}));
    pod_sets["maxItems"] = MAX_POD_SETS.into();
    pod_sets["items"]["x-kubernetes-preserve-unknown-fields"] = true.into();
    let mut spec = open;
    spec["properties"] = json!({"podSets": pod_sets});
    let conditions = json!({
        "type": text, "status": text, "reason": text, "message": text,
        "lastTransitionTime": text, "observedGeneration": number,
    });
    let checks = json!({
        "name": text, "state": text, "message": text, "lastTransitionTime": text,
        "podSetUpdates": open_list,
    });
    let status = json!({"type": "object", "properties": {
        "conditions": list_by("type", &conditions),
        "admissionChecks": list_by("name", &checks),
        "reclaimablePods": list_by("name", &json!({"name": text, "count": number})),
        "admission": atomic(&json!({"clusterQueue": text, "podSetAssignments": open_list})),
        "requeueState": atomic(&json!({"count": number, "requeueAt": text})),
    }});
    json!({"type": "object", "properties": {"spec": spec, "status": status, "value": number}})
}

/// An object that an apply replaces or removes as a whole.
fn atomic(properties: &Value) -> Value {
    json!({"type": "object", "x-kubernetes-map-type": "atomic", "properties": properties})
}

/// A list that an apply merges by this key.
fn list_by(key: &str, properties: &Value) -> Value {
    json!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
        "items": {"type": "object", "required": [key], "properties": properties},
    })
}

/// Installs the CRDs in `version` (`v1beta1` or `v1beta2`), and waits until all kinds are served.
/// Call [`uninstall`] before another version is installed.
pub async fn install(client: &Client, version: &str) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("queue-stand-in").force();
    for kind in &KINDS {
        let patch = Patch::Apply(kind.crd(version));
        let name = kind.crd_name();
        crds.patch(&name, &params, &patch).await.unwrap();
    }
    for kind in &KINDS {
        let name = kind.crd_name();
        let established = await_condition(crds.clone(), &name, is_crd_established());
        established.await.unwrap();
    }
    wait_until("the API of Kueue is served", async || {
        is_served(client, version).await
    })
    .await;
}

/// Removes the CRDs and their objects, and waits until they are gone.
pub async fn uninstall(client: &Client) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for kind in &KINDS {
        let name = kind.crd_name();
        match crds.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => drop(other.unwrap()),
        }
    }
    wait_until("the API of Kueue is removed", async || {
        for kind in &KINDS {
            let name = kind.crd_name();
            if !matches!(crds.get_opt(&name).await, Ok(None)) {
                return false;
            }
        }
        served_version(client).await.is_none()
    })
    .await;
}

/// Returns the API of one of Kueue's kinds. Without a namespace it covers all namespaces.
pub fn objects(
    client: &Client,
    version: &str,
    kind: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let found = KINDS.iter().find(|known| known.name == kind).unwrap();
    let gvk = GroupVersionKind::gvk(GROUP, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, found.plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Returns the version of Kueue's API that the server prefers.
pub(crate) async fn served_version(client: &Client) -> Option<String> {
    let group = get(client, &format!("/apis/{GROUP}")).await?;
    Some(group["preferredVersion"]["version"].as_str()?.to_owned())
}

async fn get(client: &Client, path: &str) -> Option<Value> {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.ok()
}

/// Whether discovery lists all kinds in this version and their lists can be read. The API server
/// updates the two separately.
async fn is_served(client: &Client, version: &str) -> bool {
    if served_version(client).await.as_deref() != Some(version) {
        return false;
    }
    let document = get(client, &format!("/apis/{GROUP}/{version}")).await;
    let document = document.unwrap_or_default();
    for kind in &KINDS {
        let is_listed = items(&document["resources"]).any(|item| item["name"] == kind.plural);
        let api = objects(client, version, kind.name, None);
        if !is_listed || api.list(&ListParams::default()).await.is_err() {
            return false;
        }
    }
    true
}

/// Polls until `is_done`; panics after the timeout.
pub(crate) async fn wait_until(description: &str, mut is_done: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_done().await {
        assert!(
            Instant::now() < deadline,
            "not within {TIMEOUT:?}: {description}"
        );
        sleep(POLL_INTERVAL).await;
    }
}
