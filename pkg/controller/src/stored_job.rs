//! Jobs as the API server stores them, read without decoding the spec.

use di_api::{ConditionType, DIJobStatus, Phase, Reason, guarded_patch, set_condition, validation};
use di_cache::Key;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{
    Api, Resource, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{Error, EventRecord, context::Context, error::Result, step};

pub(crate) async fn get_stored_job(
    context: &Context,
    (namespace, name): &Key,
) -> Result<Option<DynamicObject>> {
    let operation = || format!("get DIJob {namespace}/{name}");
    let api = untyped_api(context, namespace);
    context.get("dijobs", operation, api.get_opt(name)).await
}

/// Returns an API client for the version with the open schema: the API server rejects every write
/// through the other version while the spec does not fit its schema. See docs/decisions/0003.
fn untyped_api(context: &Context, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(
        context.client.clone(),
        namespace,
        &di_cache::legacy_resource(),
    )
}

/// Parses one field. Returns `None` if it does not have the type.
pub(crate) fn parse_field<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok()
}

/// Returns true if anything of the stored job was planned or created. The stored job is read,
/// because the cache may lag.
pub(crate) fn has_started(job: &DynamicObject) -> bool {
    let has_started = |status: DIJobStatus| step::has_started(&status);
    // A job with an unreadable status has started.
    let status = parse_field::<Option<DIJobStatus>>(&job.data["status"]);
    status.is_none_or(|status| status.is_some_and(has_started))
}

pub(crate) fn is_suspended(job: &DynamicObject) -> bool {
    job.data["spec"]["suspend"] == true
}

/// What an invalid spec does to its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnInvalidSpec {
    /// The job fails.
    FailJob,
    /// The spec is only reported: the pods of the job are worth more than the mistake.
    ReportOnly,
}

/// Returns the errors that the validator finds in the stored job.
pub(crate) fn spec_errors(job: &DynamicObject) -> Option<String> {
    let job = serde_json::to_value(job).ok()?;
    let faults = validation::validate_dijob(&job).err()?;
    Some(validation::summarize_faults(&faults))
}

/// Fails a new job if the validator rejects its stored spec. Returns true if it failed the job.
///
/// The stored job is read, because decoding drops unknown fields. See docs/decisions/0011 and
/// docs/decisions/0013.
pub(crate) async fn fail_invalid_spec(context: &Context, key: &Key) -> Result<bool> {
    let Some(job) = get_stored_job(context, key).await? else {
        return Ok(false);
    };
    if has_started(&job) || is_suspended(&job) {
        return Ok(false);
    }
    let Some(faults) = spec_errors(&job) else {
        return Ok(false);
    };
    report_invalid_spec(context, &job, &faults, OnInvalidSpec::FailJob).await?;
    Ok(true)
}

/// Reports an invalid spec in the status and by an event, and fails the job if `effect` says so.
///
/// Does nothing if it is already reported, or the job has ended.
pub(crate) async fn report_invalid_spec(
    context: &Context,
    job: &DynamicObject,
    faults: &str,
    effect: OnInvalidSpec,
) -> Result<()> {
    let now = (context.settings.clock)();
    let Some((status, message)) = invalid_status(job, faults, effect, now) else {
        return Ok(());
    };
    let namespace = job.namespace().unwrap_or_default();
    let (name, version) = (job.name_any(), job.resource_version());
    let api = untyped_api(context, &namespace);
    let patch = guarded_patch(version.as_deref(), ["status"], status);
    let params = PatchParams::default();
    let patch = Patch::<DynamicObject>::Json(patch);
    let call = api.patch_status(&name, &params, &patch);
    let operation = || format!("write status of DIJob {namespace}/{name}");
    let written = context
        .write("patch", "dijobs/status", operation, call)
        .await;
    let written = written.map_err(Error::map_job_not_found);
    // If the outcome is unknown, the write may have succeeded, and no later reconcile emits the
    // event. A duplicate is better than none.
    if written.as_ref().err().is_none_or(Error::outcome_unknown) {
        let event = EventRecord::warning(Reason::InvalidSpec, message);
        let reference = job.object_ref(&di_cache::legacy_resource());
        context.queue_event_about(&reference, &event);
    }
    written.map(drop)
}

/// Returns the status that reports an invalid spec, and its message. `None` if it is already
/// reported, or the job has ended.
fn invalid_status(
    job: &DynamicObject,
    faults: &str,
    effect: OnInvalidSpec,
    now: Timestamp,
) -> Option<(Value, String)> {
    let old = &job.data["status"];
    let phase: Option<Phase> = serde_json::from_value(old["phase"].clone()).ok()?;
    let mut conditions: Vec<Condition> =
        serde_json::from_value(old["conditions"].clone()).unwrap_or_default();
    let before = conditions.clone();
    let (type_, is_true, message) = match phase {
        Some(phase) if phase.is_terminal() => return None,
        _ if effect == OnInvalidSpec::FailJob => (ConditionType::Failed, true, faults.to_owned()),
        _ => {
            let message =
                format!("the spec is invalid, so the running pods are left unchanged: {faults}");
            (ConditionType::ReplicasReady, false, message)
        }
    };
    let generation = job.metadata.generation;
    let now = Time(now);
    set_condition(
        &mut conditions,
        type_,
        is_true,
        Reason::InvalidSpec,
        &message,
        generation,
        &now,
    );
    if conditions == before {
        return None;
    }
    let mut status = old.as_object().cloned().unwrap_or_default();
    status.insert("reason".to_owned(), Reason::InvalidSpec.as_str().into());
    status.insert("conditions".to_owned(), json!(conditions));
    if type_ == ConditionType::Failed {
        status.insert("observedGeneration".to_owned(), json!(generation));
        status.insert("phase".to_owned(), json!(Phase::Failed));
        status.insert("completionTime".to_owned(), json!(now));
    }
    Some((status.into(), message))
}
