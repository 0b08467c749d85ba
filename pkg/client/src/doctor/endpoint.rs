use di_api::names;
use k8s_openapi::api::{
    core::v1::{Endpoints, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, api::ListParams, error::Error as KubeError};

use super::Finding;
use crate::{Cluster, Result};

const CHECK: &str = "endpoint";

/// Whether coordinators find somebody to ask for replicas.
pub(super) async fn look(cluster: &Cluster) -> Result<Vec<Finding>> {
    let client = || cluster.client.clone();
    let services: Api<Service> = Api::namespaced(client(), names::SYSTEM_NAMESPACE);
    let found = services.get_opt(names::SERVER_SERVICE).await;
    if found.map_err(|error| cluster.error(error))?.is_none() {
        let missing = format!("there is no Service {}", names::SERVER_SERVICE);
        return Ok(vec![
            Finding::error(CHECK, missing).remedy("kubectl di upgrade"),
        ]);
    }
    let slices: Api<EndpointSlice> = Api::namespaced(client(), names::SYSTEM_NAMESPACE);
    let label = format!("kubernetes.io/service-name={}", names::SERVER_SERVICE);
    let ready = match slices.list(&ListParams::default().labels(&label)).await {
        Ok(slices) => slices.items.iter().map(ready).sum(),
        // Before 1.21, there are only the older objects.
        Err(KubeError::Api(status)) if status.is_not_found() => older(cluster).await?,
        Err(error) => return Err(cluster.error(error)),
    };
    Ok(vec![judge(ready)])
}

fn ready(slice: &EndpointSlice) -> usize {
    let endpoints = slice.endpoints.iter().flatten();
    endpoints
        .filter(|one| {
            let conditions = one.conditions.as_ref();
            conditions.and_then(|c| c.ready).unwrap_or(true)
        })
        .count()
}

async fn older(cluster: &Cluster) -> Result<usize> {
    let endpoints: Api<Endpoints> =
        Api::namespaced(cluster.client.clone(), names::SYSTEM_NAMESPACE);
    let found = endpoints.get_opt(names::SERVER_SERVICE).await;
    let found = found.map_err(|error| cluster.error(error))?;
    let subsets = found.and_then(|found| found.subsets).unwrap_or_default();
    let addresses = subsets.into_iter().filter_map(|subset| subset.addresses);
    Ok(addresses.map(|addresses| addresses.len()).sum())
}

fn judge(ready: usize) -> Finding {
    match ready {
        0 => Finding::error(
            CHECK,
            "no replica serves di-server.di-system:8080: coordinators cannot ask for replicas",
        )
        .remedy(
            "see why: kubectl -n di-system describe pods -l app.kubernetes.io/name=di-orchestrator",
        ),
        1 => Finding::ok(CHECK, "1 replica serves it"),
        many => Finding::ok(CHECK, format!("{many} replicas serve it")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_ready_addresses_count() {
        let slice: EndpointSlice = serde_json::from_value(json!({
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
                {"addresses": ["10.0.0.3"]},
            ],
        }))
        .unwrap();
        assert_eq!(ready(&slice), 2);
        assert_eq!(judge(2).message, "2 replicas serve it");
    }
}
