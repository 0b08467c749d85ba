use di_api::{AggregatorConfig, Role, names};
use di_cache::JobView;
use di_plan::{AggregatorTemplate, entry_kind};
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
};

use super::{super::check_job_active, addition::Addition, planning::check_roles};
use crate::{
    error::{Error, Result},
    state::call_api,
    wire::ReplicaRequest,
};

/// Reads the template of aggregator pods from the API server if the request needs learner groups.
pub(super) async fn read_aggregator_template(
    addition: &Addition<'_>,
) -> Result<AggregatorTemplate> {
    let Addition {
        state, key, roles, ..
    } = addition;
    let job = state.find_job(key).await?;
    // Requests that the cached job rejects are checked again when the job is changed.
    let is_rejected = check_job_active(&job).is_err() || check_roles(&job, roles).is_err();
    if is_rejected || !needs_aggregators(&job, roles) {
        return Ok(AggregatorTemplate::Unknown);
    }
    let kind = ApiResource::erase::<AggregatorConfig>(&());
    for namespace in [&key.0, names::SYSTEM_NAMESPACE] {
        let api: Api<DynamicObject> = Api::namespaced_with(state.client.clone(), namespace, &kind);
        let read = call_api("read the AggregatorConfig", async {
            api.get_opt(names::AGGREGATOR_CONFIG).await
        });
        if let Some(config) = read.await? {
            let config = serde_json::to_value(&config);
            let config = config.map_err(|error| Error::Invalid(error.to_string()))?;
            return Ok(AggregatorTemplate::from_config(&config));
        }
    }
    Ok(AggregatorTemplate::Missing)
}

/// Whether the request needs learner groups. Their aggregators need an `AggregatorConfig`.
fn needs_aggregators(job: &JobView, roles: &[(Role, &ReplicaRequest)]) -> bool {
    roles
        .iter()
        .any(|(role, part)| entry_kind(job, *role, &part.resources).0 == Role::Aggregator)
}
