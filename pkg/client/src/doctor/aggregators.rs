use di_api::{AggregatorConfig, names};
use kube::Api;

use super::Finding;
use crate::{Cluster, Result};

const CHECK: &str = "aggregators";

/// Whether learners of more than one GPU would find what their aggregators are made from.
pub(super) async fn look(cluster: &Cluster) -> Result<Vec<Finding>> {
    for namespace in [&cluster.namespace().name, names::SYSTEM_NAMESPACE] {
        let configs: Api<AggregatorConfig> = Api::namespaced(cluster.client.clone(), namespace);
        let found = configs.get_opt(names::AGGREGATOR_CONFIG).await;
        if found.map_err(|error| cluster.error(error))?.is_some() {
            let message = format!(
                "AggregatorConfig {} of namespace {namespace} is used",
                names::AGGREGATOR_CONFIG
            );
            return Ok(vec![Finding::ok(CHECK, message)]);
        }
    }
    // Only some jobs need one.
    let message = "there is no AggregatorConfig; learners that ask for more than one GPU need one";
    let remedy = format!(
        "if there are such jobs: create an AggregatorConfig named {} in namespace {} or in theirs; what it holds: \
         kubectl explain aggregatorconfig.spec.aggregator",
        names::AGGREGATOR_CONFIG,
        names::SYSTEM_NAMESPACE
    );
    Ok(vec![Finding::ok(CHECK, message).remedy(remedy)])
}
