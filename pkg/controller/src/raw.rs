//! Jobs as they are stored, for what decoding hides: servers without our webhooks let jobs through that cannot be decoded, and decoding
//! drops fields that are unknown.

use di_api::{
    CleanPodPolicy, ConditionType, CoordinatorSpec, DIJob, DIJobSpec, DIJobStatus, Phase, Reason,
    guarded_patch, set_condition, validation,
};
use di_cache::Key;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::PodTemplateSpec,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    core::error_boundary::InvalidObject,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::warn;

use crate::{Error, Note, context::Context, error::Result, step::has_begun};

/// Fails a job that cannot be decoded, if it never ran. One that runs already is told of and left as it is: its pods are worth more than
/// the mistake. One that has ended is returned, as far as [its end](ended) can be read.
pub(crate) async fn fail_undecodable(
    context: &Context,
    invalid: &InvalidObject,
) -> Result<Option<DIJob>> {
    let namespace = invalid.metadata.namespace.as_deref().unwrap_or_default();
    let name = invalid.metadata.name.as_deref().unwrap_or_default();
    // The job's condition says why, and that may quote its environment.
    warn!("Job cannot be decoded");
    let Some(job) = get(context, namespace, name).await? else {
        return Ok(None);
    };
    if let Some(ended) = ended(&job) {
        return Ok(Some(ended));
    }
    // The validator takes some nulls that decoding does not.
    let why = mistakes(&job).unwrap_or_else(|| invalid.error.clone());
    let key = (namespace.to_owned(), name.to_owned());
    // A job may have lost its status, and have pods by which it runs.
    let runs = context.has_pods(&key, job.metadata.uid.as_deref());
    let fails = is_to_begin(&job) && !runs;
    if let Some((status, message)) = told(&job, &why, fails, (context.settings.clock)()) {
        tell(context, &job, status, message).await?;
    }
    Ok(None)
}

/// What an ended job says of what is to be left of it; nothing where it has not ended. What cannot be read stays: no pod goes by a policy
/// that nobody knows, and no job by a time.
fn ended(job: &DynamicObject) -> Option<DIJob> {
    let (spec, status) = (&job.data["spec"], &job.data["status"]);
    let status = DIJobStatus {
        phase: read(&status["phase"]),
        completion_time: read(&status["completionTime"]),
        conditions: read(&status["conditions"]).unwrap_or_default(),
        ..DIJobStatus::default()
    };
    if !status.has_ended() {
        return None;
    }
    let policy = match &spec["cleanPodPolicy"] {
        Value::Null => CleanPodPolicy::default(),
        policy => read(policy).unwrap_or(CleanPodPolicy::None),
    };
    // Written out: to decode it takes a decoder of pods, which is large.
    let spec = DIJobSpec {
        clean_pod_policy: policy,
        ttl_seconds_after_finished: read(&spec["ttlSecondsAfterFinished"]),
        coordinator: CoordinatorSpec {
            template: PodTemplateSpec::default(),
        },
        group: String::new(),
        priority_class_name: String::new(),
        volumes: Vec::new(),
        collector: None,
        learner: None,
        suspend: false,
        active_deadline_seconds: None,
        backoff_limit: 0,
    };
    let mut ended = DIJob::new(&job.name_any(), spec);
    (ended.metadata, ended.status) = (job.metadata.clone(), Some(status));
    Some(ended)
}

fn read<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok()
}

/// Fails a job that is to begin if the validator refuses it as it is stored; whether it does.
pub(crate) async fn fail_invalid(context: &Context, (namespace, name): &Key) -> Result<bool> {
    let Some(job) = get(context, namespace, name).await? else {
        return Ok(false);
    };
    if !is_to_begin(&job) {
        return Ok(false);
    }
    let Some(why) = mistakes(&job) else {
        return Ok(false);
    };
    if let Some((status, message)) = told(&job, &why, true, (context.settings.clock)()) {
        tell(context, &job, status, message).await?;
    }
    Ok(true)
}

/// As it is stored: a cache may be behind.
fn is_to_begin(job: &DynamicObject) -> bool {
    let is_new = |status: Option<DIJobStatus>| status.is_none_or(|status| !has_begun(&status));
    // One whose status cannot be read is no new one.
    let is_new = read(&job.data["status"]).is_some_and(is_new);
    is_new && job.data["spec"]["suspend"] != true
}

fn mistakes(job: &DynamicObject) -> Option<String> {
    let job = serde_json::to_value(job).ok()?;
    let faults = validation::dijob(&job).err()?;
    Some(validation::summary(&faults))
}

async fn get(context: &Context, namespace: &str, name: &str) -> Result<Option<DynamicObject>> {
    let what = || "get the job".to_owned();
    let found = api(context, namespace);
    context.get("dijobs", what, found.get_opt(name)).await
}

/// By the version whose schema is open: that of the stored one would refuse the object whole, status and all.
fn api(context: &Context, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(
        context.client.clone(),
        namespace,
        &di_cache::open_resource(),
    )
}

async fn tell(
    context: &Context,
    job: &DynamicObject,
    status: Value,
    message: String,
) -> Result<()> {
    let api = api(context, &job.namespace().unwrap_or_default());
    let (name, version) = (job.name_any(), job.resource_version());
    let patch = guarded_patch(version.as_deref(), ["status"], status);
    let params = PatchParams::default();
    let patch = Patch::<DynamicObject>::Json(patch);
    let call = api.patch_status(&name, &params, &patch);
    let what = || "write the status".to_owned();
    let written = context.write("patch", "dijobs/status", what, call).await;
    let written = written.map_err(Error::of_the_job);
    // A write without an answer may stand, and then nobody else tells: rather twice than never.
    if written.as_ref().err().is_none_or(Error::may_be_done) {
        let note = Note::warning(Reason::InvalidSpec, message);
        let about = job.object_ref(&di_cache::open_resource());
        context.publish_about(&about, &note);
    }
    written.map(drop)
}

/// The status that tells of the mistake, and what it says; nothing where it is told already, or the job has ended.
fn told(job: &DynamicObject, why: &str, fails: bool, now: Timestamp) -> Option<(Value, String)> {
    let old = &job.data["status"];
    let phase: Option<Phase> = serde_json::from_value(old["phase"].clone()).ok()?;
    let mut conditions: Vec<Condition> =
        serde_json::from_value(old["conditions"].clone()).unwrap_or_default();
    let before = conditions.clone();
    let (type_, told, message) = match phase {
        Some(phase) if phase.is_terminal() => return None,
        _ if fails => (ConditionType::Failed, true, why.to_owned()),
        _ => {
            let message = format!("the job cannot be read, and stays as it was: {why}");
            (ConditionType::ReplicasReady, false, message)
        }
    };
    let generation = job.metadata.generation;
    let now = Time(now);
    set_condition(
        &mut conditions,
        type_,
        told,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read_of(spec: &Value, status: &Value) -> Option<(CleanPodPolicy, Option<i32>, bool)> {
        let job = serde_json::from_value(json!({
            "apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob",
            "metadata": {"name": "j", "uid": "u"}, "spec": spec, "status": status,
        }));
        let ended = ended(&job.unwrap())?;
        assert_eq!(ended.metadata.uid.as_deref(), Some("u"));
        let at = ended.status.unwrap().completion_time;
        let spec = ended.spec;
        Some((
            spec.clean_pod_policy,
            spec.ttl_seconds_after_finished,
            at.is_some(),
        ))
    }

    #[test]
    fn of_an_ended_job_is_read_what_can_be_and_the_rest_keeps_what_is_there() {
        let good = json!({"phase": "Failed", "completionTime": "2027-01-15T08:00:00Z"});
        let all = json!({"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 5, "volumes": 7});
        assert_eq!(
            read_of(&all, &good),
            Some((CleanPodPolicy::All, Some(5), true))
        );
        let none = json!({"coordinator": "x"});
        assert_eq!(
            read_of(&none, &good),
            Some((CleanPodPolicy::Running, None, true))
        );
        let odd = json!({"cleanPodPolicy": 7, "ttlSecondsAfterFinished": "soon"});
        assert_eq!(
            read_of(&odd, &good),
            Some((CleanPodPolicy::None, None, true))
        );
        let odd = json!({"phase": "Succeeded", "completionTime": 7, "plan": 7});
        assert_eq!(
            read_of(&all, &odd),
            Some((CleanPodPolicy::All, Some(5), false))
        );

        for goes_on in [
            json!({"phase": "Running"}),
            json!({"phase": 7}),
            Value::Null,
        ] {
            assert_eq!(read_of(&all, &goes_on), None, "{goes_on}");
        }
    }
}
