use di_api::names;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, discovery, error::Error as KubeError};

use crate::{Cluster, Result};

/// What runs in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Of Kubernetes.
    pub kubernetes: String,
    /// Versions of our API that are served, preferred first.
    pub api: Vec<String>,
    /// The orchestrator.
    pub orchestrator: Orchestrator,
}

/// The orchestrator of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Orchestrator {
    /// Images that it runs, one for each container.
    Images(Vec<String>),
    /// There is none.
    NotInstalled,
    /// The user may not look.
    Hidden,
}

/// What runs in the cluster.
pub async fn versions(cluster: &Cluster) -> Result<Versions> {
    let info = cluster.client.apiserver_version().await;
    let kubernetes = info.map_err(|error| cluster.error(error))?.git_version;
    let api = match discovery::group(&cluster.client, names::GROUP).await {
        Ok(group) => group.versions().map(str::to_owned).collect(),
        Err(KubeError::Discovery(_)) => Vec::new(),
        Err(error) => return Err(cluster.error(error)),
    };
    Ok(Versions {
        kubernetes,
        api,
        orchestrator: orchestrator(cluster).await?,
    })
}

async fn orchestrator(cluster: &Cluster) -> Result<Orchestrator> {
    let deployments: Api<Deployment> =
        Api::namespaced(cluster.client.clone(), names::SYSTEM_NAMESPACE);
    let deployment = match deployments.get_opt(names::WEBHOOK_SERVICE).await {
        Ok(Some(deployment)) => deployment,
        Ok(None) => return Ok(Orchestrator::NotInstalled),
        Err(KubeError::Api(status)) if status.is_forbidden() => return Ok(Orchestrator::Hidden),
        Err(error) => return Err(cluster.error(error)),
    };
    let pod = deployment.spec.template.spec;
    let mut images: Vec<_> = pod
        .into_iter()
        .flat_map(|pod| pod.containers)
        .filter_map(|container| container.image)
        .collect();
    images.dedup();
    Ok(Orchestrator::Images(images))
}
