//! Jobs that cannot be decoded, which servers without our webhooks let through under the legacy version.

use di_api::{ConditionType, Phase, guarded_patch, set_condition};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{
    Api, Resource, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    core::error_boundary::InvalidObject,
};
use serde_json::{Value, json};
use tracing::warn;

use crate::{
    Note,
    context::{Context, in_time},
    error::Result,
};

const INVALID: &str = "InvalidSpec";

/// Fails such a job with the reason, if it never ran. One that runs already is told of and left as it is: its pods are worth more than
/// the mistake.
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
    let Some((status, message)) = told(&job, &invalid.error, Timestamp::now()) else {
        return Ok(());
    };
    let version = job.resource_version();
    let patch = guarded_patch(version.as_deref(), ["status"], status);
    let params = PatchParams::default();
    let patch = Patch::<DynamicObject>::Json(patch);
    let call = api.patch_status(name, &params, &patch);
    let what = || "write the status".to_owned();
    context.write("patch", "dijobs/status", what, call).await?;
    let note = Note::warning(INVALID, message);
    context
        .publish_about(&job.object_ref(&resource), &note)
        .await;
    Ok(())
}

/// The status that tells of the mistake, and what it says; nothing where it is told already, or the job has ended.
fn told(job: &DynamicObject, error: &str, now: Timestamp) -> Option<(Value, String)> {
    let old = &job.data["status"];
    let phase: Option<Phase> = serde_json::from_value(old["phase"].clone()).ok()?;
    let mut conditions: Vec<Condition> =
        serde_json::from_value(old["conditions"].clone()).unwrap_or_default();
    let before = conditions.clone();
    let (type_, told, message) = match phase {
        None => {
            let message = format!("the job cannot be read: {error}");
            (ConditionType::Failed, true, message)
        }
        Some(phase) if phase.is_terminal() => return None,
        Some(_) => {
            let message =
                format!("the job cannot be read any more, and runs on as it was: {error}");
            (ConditionType::ReplicasReady, false, message)
        }
    };
    let generation = job.metadata.generation;
    let now = Time(now);
    set_condition(
        &mut conditions,
        type_,
        told,
        INVALID,
        &message,
        generation,
        &now,
    );
    if conditions == before {
        return None;
    }
    let mut status = old.as_object().cloned().unwrap_or_default();
    status.insert("reason".to_owned(), INVALID.into());
    status.insert("conditions".to_owned(), json!(conditions));
    if phase.is_none() {
        status.insert("observedGeneration".to_owned(), json!(generation));
        status.insert("phase".to_owned(), json!(Phase::Failed));
        status.insert("completionTime".to_owned(), json!(now));
    }
    Some((status.into(), message))
}
