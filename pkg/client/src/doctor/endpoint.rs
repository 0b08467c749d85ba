use di_api::names;
use k8s_openapi::api::{
    core::v1::{Endpoints, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, api::ListParams, error::Error as KubeError};

use super::finding::Finding;
use crate::{Cluster, HelmRelease, Result, install::helm::upgrade_command};

const CHECK: &str = "endpoint";

/// Checks that a ready pod serves the replica endpoint.
pub(super) async fn check_endpoint(
    cluster: &Cluster,
    release: Option<&HelmRelease>,
) -> Result<Vec<Finding>> {
    let client = || cluster.client.clone();
    let services: Api<Service> = Api::namespaced(client(), names::SYSTEM_NAMESPACE);
    let found = services.get_opt(names::SERVER_SERVICE).await;
    if found
        .map_err(|error| cluster.convert_error(error))?
        .is_none()
    {
        let missing = format!("Service {} does not exist", names::SERVER_SERVICE);
        let remedy = format!("run {}", upgrade_command(release));
        return Ok(vec![Finding::error(CHECK, missing).with_remedy(remedy)]);
    }
    let slices: Api<EndpointSlice> = Api::namespaced(client(), names::SYSTEM_NAMESPACE);
    let label = format!("kubernetes.io/service-name={}", names::SERVER_SERVICE);
    let ready = match slices.list(&ListParams::default().labels(&label)).await {
        Ok(slices) => slices.items.iter().map(ready_endpoints).sum(),
        // Kubernetes before 1.21 has only Endpoints.
        Err(KubeError::Api(status)) if status.is_not_found() => {
            ready_addresses_before_1_21(cluster).await?
        }
        Err(error) => return Err(cluster.convert_error(error)),
    };
    Ok(vec![endpoint_finding(ready)])
}

fn ready_endpoints(slice: &EndpointSlice) -> usize {
    let endpoints = slice.endpoints.iter().flatten();
    endpoints
        .filter(|one| {
            let conditions = one.conditions.as_ref();
            conditions.and_then(|c| c.ready).unwrap_or(true)
        })
        .count()
}

async fn ready_addresses_before_1_21(cluster: &Cluster) -> Result<usize> {
    let endpoints: Api<Endpoints> =
        Api::namespaced(cluster.client.clone(), names::SYSTEM_NAMESPACE);
    let found = endpoints.get_opt(names::SERVER_SERVICE).await;
    let found = found.map_err(|error| cluster.convert_error(error))?;
    let subsets = found.and_then(|found| found.subsets).unwrap_or_default();
    let addresses = subsets.into_iter().filter_map(|subset| subset.addresses);
    Ok(addresses.map(|addresses| addresses.len()).sum())
}

fn endpoint_finding(ready: usize) -> Finding {
    match ready {
        0 => Finding::error(
            CHECK,
            "no ready pod serves di-server.di-system:8080, so coordinators cannot request replicas",
        )
        .with_remedy(
            "find out why: kubectl -n di-system describe pods -l app.kubernetes.io/name=di-orchestrator",
        ),
        1 => Finding::ok(CHECK, "1 pod serves the replica endpoint"),
        many => Finding::ok(CHECK, format!("{many} pods serve the replica endpoint")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ready_endpoints_ignores_unready_addresses() {
        let slice: EndpointSlice = serde_json::from_value(json!({
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
                {"addresses": ["10.0.0.3"]},
            ],
        }))
        .unwrap();
        assert_eq!(ready_endpoints(&slice), 2);
        assert_eq!(
            endpoint_finding(2).message,
            "2 pods serve the replica endpoint"
        );
    }
}
