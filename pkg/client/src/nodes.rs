//! The nodes of the cluster with their GPUs, and the jobs that use them.

use std::collections::BTreeMap;

use di_api::{GPU_RESOURCE, names, quantity};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    core::{ObjectList, params::ListParams},
};
use serde::Serialize;

use crate::{Cluster, Error, ReplicaPod, Result};

/// Page size of lists: the memory does not grow with the number of pods.
const PAGE_SIZE: u32 = 500;

/// The nodes of a cluster.
#[derive(Debug)]
pub struct NodeList {
    /// Nodes in order of name.
    pub nodes: Vec<NodeGpus>,
    /// The error if the user may not list the pods of all namespaces. Only those of the current
    /// namespace are then counted, if the user may list these.
    pub pods_hidden: Option<Error>,
}

/// A node with its GPUs (`nvidia.com/gpu`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeGpus {
    /// Name of the node.
    pub name: String,
    /// Whether the node is ready.
    pub ready: bool,
    /// Whether new pods may be scheduled to it.
    pub schedulable: bool,
    /// Allocatable GPUs.
    pub gpus: i32,
    /// GPUs of its pods.
    pub used: i32,
    /// Jobs, and namespaces with other pods that use GPUs.
    pub users: Vec<NodeUser>,
}

/// The pods of one job on a node, or the other pods of a namespace that use GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeUser {
    /// Namespace of the pods.
    pub namespace: String,
    /// Name of the job. `None` for pods of no job.
    pub job: Option<String>,
    /// GPUs of the pods.
    pub gpus: i32,
    /// Number of pods.
    pub pods: usize,
}

/// Node, namespace and job.
type UserKey = (String, String, Option<String>);

/// GPUs and number of pods by user.
type Usage = BTreeMap<UserKey, (i32, usize)>;

/// Lists the nodes with the pods that use them.
pub async fn list_nodes(cluster: &Cluster) -> Result<NodeList> {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let nodes = nodes.list(&ListParams::default()).await;
    let nodes = nodes.map_err(|error| cluster.convert_error(error))?.items;
    let (usage, pods_hidden) = match read_usage(cluster, Api::all(cluster.client.clone())).await {
        Ok(usage) => (usage, None),
        Err(error) if error.is_forbidden() => {
            let namespace = &cluster.namespace().name;
            let pods = Api::namespaced(cluster.client.clone(), namespace);
            let usage = match read_usage(cluster, pods).await {
                Err(error) if error.is_forbidden() => Usage::new(),
                usage => usage?,
            };
            (usage, Some(error))
        }
        Err(error) => return Err(error),
    };
    let nodes = nodes.iter().map(|node| node_gpus(node, &usage)).collect();
    Ok(NodeList { nodes, pods_hidden })
}

/// Counts the GPUs of the pods that have a node and have not ended.
async fn read_usage(cluster: &Cluster, pods: Api<Pod>) -> Result<Usage> {
    let active = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
    let mut params = ListParams::default().fields(active).limit(PAGE_SIZE);
    let mut usage = Usage::new();
    loop {
        let page: ObjectList<Pod> = pods
            .list(&params)
            .await
            .map_err(|error| cluster.convert_error(error))?;
        page.items.iter().for_each(|pod| add_usage(&mut usage, pod));
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(usage);
        }
    }
}

fn add_usage(usage: &mut Usage, pod: &Pod) {
    let job = pod.labels().get(names::labels::JOB).cloned();
    let namespace = pod.namespace().unwrap_or_default();
    let ReplicaPod { gpus, node, .. } = ReplicaPod::from(pod);
    let Some(node) = node.filter(|_| gpus > 0 || job.is_some()) else {
        return;
    };
    let (sum, pods) = usage.entry((node, namespace, job)).or_default();
    *sum += gpus;
    *pods += 1;
}

fn node_gpus(node: &Node, usage: &Usage) -> NodeGpus {
    let name = node.name_any();
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    let gpus = allocatable.and_then(|all| quantity::parse_count(&all.get(GPU_RESOURCE)?.0));
    let users = usage.iter().filter(|((node, ..), _)| *node == name);
    let users: Vec<_> = users
        .map(|((_, namespace, job), (gpus, pods))| NodeUser {
            namespace: namespace.clone(),
            job: job.clone(),
            gpus: *gpus,
            pods: *pods,
        })
        .collect();
    let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable);
    NodeGpus {
        name,
        ready: conditions.any(|one| one.type_ == "Ready" && one.status == "True"),
        schedulable: unschedulable != Some(true),
        gpus: gpus.unwrap_or(0),
        used: users.iter().map(|user| user.gpus).sum(),
        users,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn node_users_are_jobs_and_other_pods_with_gpus() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n"}, "spec": {"unschedulable": true},
            "status": {
                "allocatable": {GPU_RESOURCE: "8"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }))
        .unwrap();
        let pod = |name: &str, node: &str, gpus: i32| {
            let limits = json!({"limits": {GPU_RESOURCE: gpus.to_string()}});
            let containers = json!([{"name": "di-container", "resources": limits}]);
            let spec = json!({"nodeName": node, "containers": containers});
            di_fixtures::Pod::test(name, "learner").spec(spec).build()
        };
        let other = |name: &str, gpus: i32| {
            let mut pod: Pod = pod(name, "n", gpus);
            pod.metadata.labels = None;
            pod
        };
        let mut usage = Usage::new();
        for pod in [
            pod("a", "n", 2),
            pod("b", "n", 0),
            pod("c", "m", 4),
            other("d", 1),
            other("e", 0),
        ] {
            add_usage(&mut usage, &pod);
        }
        let found = node_gpus(&node, &usage);
        let users: Vec<_> = found
            .users
            .iter()
            .map(|user| (user.job.as_deref(), user.gpus, user.pods))
            .collect();
        assert_eq!(users, [(None, 1, 1), (Some("j"), 2, 2)]);
        assert_eq!((found.gpus, found.used), (8, 3));
        assert!(found.ready && !found.schedulable);
    }
}
