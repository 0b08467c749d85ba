//! Names for shell completion. Lists metadata only, with a limit, to be fast.

use di_api::{DIJob, names::labels};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, ResourceExt, api::ListParams};

use crate::{Cluster, Result, get_job};

/// Maximum number of completed names.
const MAX_NAMES: u32 = 500;

/// Names of the jobs in the current namespace.
pub async fn job_names(cluster: &Cluster) -> Result<Vec<String>> {
    let jobs: Api<DIJob> = Api::namespaced(cluster.client.clone(), &cluster.namespace().name);
    let found = jobs
        .list_metadata(&ListParams::default().limit(MAX_NAMES))
        .await;
    let found = found.map_err(|error| cluster.convert_error(error))?;
    Ok(found.iter().map(ResourceExt::name_any).collect())
}

/// Names of the namespaces.
pub async fn namespace_names(cluster: &Cluster) -> Result<Vec<String>> {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let found = namespaces
        .list_metadata(&ListParams::default().limit(MAX_NAMES))
        .await;
    let found = found.map_err(|error| cluster.convert_error(error))?;
    Ok(found.iter().map(ResourceExt::name_any).collect())
}

/// Names of the replicas in the current namespace, each with its job.
pub async fn replica_names(cluster: &Cluster) -> Result<Vec<(String, String)>> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace().name);
    let params = ListParams::default()
        .labels(labels::SELECTOR)
        .limit(MAX_NAMES);
    let found = pods.list_metadata(&params).await;
    let found = found.map_err(|error| cluster.convert_error(error))?;
    let named = found.iter().map(|pod| {
        let job = pod.labels().get(labels::JOB).cloned();
        (pod.name_any(), job.unwrap_or_default())
    });
    Ok(named.collect())
}

/// Names of the containers in the templates of a job, including init containers.
pub async fn container_names(cluster: &Cluster, name: &str) -> Result<Vec<String>> {
    let job = get_job(cluster, name).await?;
    let pods = ["coordinator", "collector", "learner"]
        .map(|part| &job.object["spec"][part]["template"]["spec"]);
    let lists = pods
        .into_iter()
        .flat_map(|pod| [&pod["initContainers"], &pod["containers"]]);
    let containers = lists.filter_map(|list| list.as_array()).flatten();
    let mut names: Vec<_> = containers
        .filter_map(|container| container["name"].as_str().map(str::to_owned))
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Names of the declared groups of a job.
pub async fn group_names(cluster: &Cluster, name: &str) -> Result<Vec<String>> {
    let job = get_job(cluster, name).await?;
    let groups = ["collector", "learner"].map(|part| &job.object["spec"][part]["groups"]);
    let groups = groups.into_iter().filter_map(|groups| groups.as_array());
    let mut names: Vec<_> = groups
        .flatten()
        .filter_map(|group| group["name"].as_str().map(str::to_owned))
        .collect();
    // Collectors and learners can have groups of the same name.
    names.sort_unstable();
    names.dedup();
    Ok(names)
}
