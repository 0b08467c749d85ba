//! Jobs that cannot be decoded, which servers without our webhooks let through under the legacy version.

use di_api::{ConditionType, Phase, guarded_patch, set_condition};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Resource, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    core::error_boundary::InvalidObject,
};
use serde_json::json;
use tracing::warn;

use crate::{
    Note,
    context::{Context, in_time},
    error::Result,
};

/// Fails such a job with the reason, if it never ran. One that runs already is left as it is: its pods are worth more than the mistake.
pub(crate) async fn fail(context: &Context, invalid: &InvalidObject) -> Result<()> {
    let namespace = invalid.metadata.namespace.as_deref().unwrap_or_default();
    let name = invalid.metadata.name.as_deref().unwrap_or_default();
    warn!(error = invalid.error, "Job cannot be decoded");
    // The schema of the stored version would refuse the object whole, status and all.
    let resource = di_cache::open_resource();
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), namespace, &resource);
    let what = || "get the job".to_owned();
    let Some(job) = in_time(context.settings.call_timeout, what, api.get_opt(name)).await? else {
        return Ok(());
    };
    let message = format!("the job cannot be read: {}", invalid.error);
    if !job.data["status"]["phase"].is_null() {
        return Ok(());
    }
    let now = Time(Timestamp::now());
    let mut conditions = Vec::new();
    let generation = job.metadata.generation;
    set_condition(
        &mut conditions,
        ConditionType::Failed,
        true,
        "InvalidSpec",
        &message,
        generation,
        &now,
    );
    let status = json!({
        "observedGeneration": generation,
        "phase": Phase::Failed,
        "reason": "InvalidSpec",
        "completionTime": now,
        "conditions": conditions,
    });
    let version = job.resource_version();
    let patch = guarded_patch(version.as_deref(), ["status"], status);
    let params = PatchParams::default();
    let patch = Patch::<DynamicObject>::Json(patch);
    let call = api.patch_status(name, &params, &patch);
    let what = || "write the status".to_owned();
    context.write("patch", "dijobs/status", what, call).await?;
    let note = Note::warning("InvalidSpec", message);
    context
        .publish_about(&job.object_ref(&resource), &note)
        .await;
    Ok(())
}
