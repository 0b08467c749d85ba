use std::collections::BTreeSet;

use di_api::names::kueue::GROUP;
use kube::{
    Client,
    api::{DynamicObject, PostParams},
};
use serde_json::{Map, Value, json};

use crate::crds::{objects, served_version};

/// A ClusterQueue with one resource group. `flavors` are in order of preference, each with nominal
/// quotas of resources. If `preempts`, Workloads preempt those with a lower priority.
pub fn cluster_queue(
    name: &str,
    flavors: &[(&str, &[(&str, &str)])],
    preempts: bool,
) -> DynamicObject {
    let mut covered = BTreeSet::new();
    let mut with_quotas = Vec::new();
    for (flavor, quotas) in flavors {
        let mut resources = Vec::new();
        for (resource, quota) in *quotas {
            covered.insert(*resource);
            resources.push(json!({"name": resource, "nominalQuota": quota}));
        }
        with_quotas.push(json!({"name": flavor, "resources": resources}));
    }
    let preemption = if preempts { "LowerPriority" } else { "Never" };
    let spec = json!({
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": preemption},
        "resourceGroups": [{"coveredResources": covered, "flavors": with_quotas}],
    });
    build(json!({"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}))
}

/// A LocalQueue of a ClusterQueue.
pub fn local_queue(namespace: &str, name: &str, cluster_queue: &str) -> DynamicObject {
    build(json!({
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": cluster_queue},
    }))
}

/// A ResourceFlavor of the nodes with these labels.
pub fn flavor(name: &str, node_labels: &[(&str, &str)]) -> DynamicObject {
    let labels = node_labels.iter().copied();
    let labels: Map<String, Value> = labels
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect();
    build(json!({
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": labels},
    }))
}

/// A WorkloadPriorityClass.
pub fn priority_class(name: &str, value: i32) -> DynamicObject {
    build(json!({"kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}))
}

/// Creates an object of one of Kueue's kinds in the version that the server serves.
pub async fn create(client: &Client, mut object: DynamicObject) -> DynamicObject {
    let version = served_version(client).await.unwrap();
    let types = object.types.as_mut().unwrap();
    types.api_version = format!("{GROUP}/{version}");
    let namespace = object.metadata.namespace.as_deref();
    let api = objects(client, &version, &types.kind, namespace);
    let params = PostParams::default();
    api.create(&params, &object).await.unwrap()
}

fn build(mut object: Value) -> DynamicObject {
    // `create` replaces the version.
    object["apiVersion"] = format!("{GROUP}/v1beta2").into();
    serde_json::from_value(object).unwrap()
}
