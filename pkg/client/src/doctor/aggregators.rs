use di_api::{AggregatorConfig, names};
use kube::Api;

use super::finding::Finding;
use crate::{Cluster, Result};

const CHECK: &str = "aggregators";

/// Checks for the AggregatorConfig that learners with several GPUs need.
pub(super) async fn check_aggregator_config(cluster: &Cluster) -> Result<Vec<Finding>> {
    for namespace in [&cluster.namespace().name, names::SYSTEM_NAMESPACE] {
        let configs: Api<AggregatorConfig> = Api::namespaced(cluster.client.clone(), namespace);
        let found = configs.get_opt(names::AGGREGATOR_CONFIG).await;
        if found
            .map_err(|error| cluster.convert_error(error))?
            .is_some()
        {
            let message = format!(
                "AggregatorConfig {} in namespace {namespace} is used",
                names::AGGREGATOR_CONFIG
            );
            return Ok(vec![Finding::ok(CHECK, message)]);
        }
    }
    // Not an error: only jobs with multi-GPU learners need one.
    let message = "no AggregatorConfig exists; only learners with more than one GPU need one";
    let remedy = format!(
        "for such jobs, create an AggregatorConfig named {} in namespace {} or in the namespace of the job; for its fields: \
         kubectl explain aggregatorconfig.spec.aggregator (Kubernetes 1.27 or newer)",
        names::AGGREGATOR_CONFIG,
        names::SYSTEM_NAMESPACE
    );
    Ok(vec![Finding::ok(CHECK, message).with_remedy(remedy)])
}
