//! Applies the actions of a step: creates and deletes pods and services.

mod fail_fast;
mod precondition;

use std::sync::{Arc, Mutex, PoisonError};

use di_api::{DIJob, PlanEntry, Reason};
use di_cache::Key;
use di_plan::{IMMEDIATE_DEADLINE_SECONDS, PodView, ServiceView, build_pod, build_service};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
    core::{PartialObjectMeta, Status},
};
use serde_json::json;

use crate::{Action, Error, EventRecord, context::Context, error::Result, step::join_names};
use fail_fast::FailFast;
use precondition::is_still_desired;

/// Error of an action.
#[derive(Debug)]
pub(crate) struct ApplyError {
    pub error: Error,
    /// Resource and name of the object, if its create was
    /// [deferred](crate::job_state::DeferredCreates).
    pub deferred_create: Option<(&'static str, String)>,
}

impl From<Error> for ApplyError {
    fn from(error: Error) -> Self {
        Self {
            error,
            deferred_create: None,
        }
    }
}

/// Maximum number of concurrent requests for one job.
pub(crate) const PARALLEL_REQUESTS: usize = 16;

/// Applies all actions, and returns the most severe error, else whether anything was changed.
///
/// A failed action does not stop the others. Only actions that would fail the same way are
/// [skipped](FailFast::should_skip).
pub(crate) async fn apply_actions(
    context: &Context,
    job: &DIJob,
    key: &Key,
    actions: &[Action],
) -> Result<bool, ApplyError> {
    // Pods come before services: a pod takes time to start, and until then no client needs its
    // address.
    let (services, others): (Vec<_>, Vec<_>) = actions
        .iter()
        .partition(|action| matches!(action, Action::CreateService(_)));
    // The coordinator comes first: without it no other pod is useful, so it must get the last
    // free place in a quota.
    let (coordinator, others): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|action| action.creates_coordinator());
    let parallel_requests = if context.backoff.is_unresponsive(key) {
        1
    } else {
        PARALLEL_REQUESTS
    };
    let fail_fast = Mutex::default();
    let mut results = Vec::with_capacity(actions.len());
    for batch in [coordinator, [others, services].concat()] {
        // A transient error of the coordinator disappears. Pods that are created before could take
        // its place in a quota.
        let coordinator_waits = results.iter().any(|(_, result)| match result {
            Some(Err(error)) => Error::is_transient(error),
            _ => false,
        });
        let batch = batch
            .into_iter()
            .filter(|action| !coordinator_waits || !matches!(action, Action::CreatePod(_)));
        // Boxed, because the compiler cannot prove that futures of a closure over borrows are
        // `Send`.
        let writes: Vec<BoxFuture<'_, _>> = batch
            .map(|action| {
                let result = try_action(context, job, key, action, &fail_fast);
                async move { (action, result.await) }.boxed()
            })
            .collect();
        let writes = stream::iter(writes).buffer_unordered(parallel_requests);
        results.extend(writes.collect::<Vec<_>>().await);
    }
    let changed = |(_, result): &(_, Option<Result<bool>>)| matches!(result, Some(Ok(true)));
    let made_progress = results.iter().any(changed);
    if made_progress {
        context.backoff.reset_failures(key);
    }
    let (mut created, mut deleted) = (Vec::new(), Vec::new());
    let (mut errors, mut deferred) = (Vec::new(), Vec::new());
    for (action, result) in results {
        match (action, result) {
            (Action::CreatePod(entry), Some(Ok(true))) => {
                created.push((entry.role, entry.name.as_str()));
            }
            (Action::DeletePod { name, .. }, Some(Ok(true))) => deleted.push(name.as_str()),
            (_, Some(Err(error))) => {
                let deferred_create = created_object(action).filter(|_| !error.is_transient());
                deferred.extend(deferred_create.clone());
                errors.push(ApplyError {
                    error,
                    deferred_create,
                });
            }
            (_, None) => deferred.extend(created_object(action)),
            _ => {}
        }
    }
    // Sorted by role, the coordinator first.
    created.sort_unstable();
    let created: Vec<_> = created.into_iter().map(|(_, name)| name).collect();
    deleted.sort_unstable();
    for (reason, verb, names) in [
        (Reason::SuccessfulCreate, "created", created),
        (Reason::SuccessfulDelete, "deleted", deleted),
    ] {
        if !names.is_empty() {
            let event = EventRecord::normal(reason, format!("{verb} {}", join_names(&names)));
            context.queue_event(job, &event);
        }
    }
    if !deferred.is_empty() {
        context.update_state(key, |state| {
            let known = Arc::make_mut(&mut state.deferred_creates);
            known.generation = job.metadata.generation;
            known.objects.extend(deferred);
        });
    }
    let reported = job.status.as_ref().and_then(|s| s.reason.as_deref());
    let last_error = context.job_state(key).last_error;
    let last_create = last_error.and_then(|error| error.deferred_create);
    most_severe_error(errors, reported, last_create.as_ref()).map_or(Ok(made_progress), Err)
}

/// Returns the error to report in the status. An error that is already reported is preferred:
/// every change of the report is a status write, and causes another try.
fn most_severe_error(
    errors: Vec<ApplyError>,
    reported_reason: Option<&str>,
    reported_create: Option<&(&'static str, String)>,
) -> Option<ApplyError> {
    errors.into_iter().min_by_key(|failed| {
        let reason = failed.error.reason();
        let rank = Error::REASONS.iter().position(|other| *other == reason);
        (
            !failed.error.is_terminal(),
            reported_reason != Some(reason.as_str()),
            rank,
            failed.deferred_create.as_ref() != reported_create,
        )
    })
}

/// Returns resource and name of the object that an action creates.
pub(crate) fn created_object(action: &Action) -> Option<(&'static str, String)> {
    match action {
        Action::CreatePod(entry) => Some(("pods", entry.name.clone())),
        Action::CreateService(entry) => Some(("services", entry.name.clone())),
        _ => None,
    }
}

/// Applies an action if the job still desires it. Returns `None` if it was skipped, because it is
/// expected to fail.
async fn try_action<'a>(
    context: &Context,
    job: &DIJob,
    key: &Key,
    action: &'a Action,
    fail_fast: &Mutex<FailFast<'a>>,
) -> Option<Result<bool>> {
    let newest = context.jobs.get(key);
    if !is_still_desired(action, job, newest.as_deref()) {
        return Some(Ok(false));
    }
    let fail_fast = || fail_fast.lock().unwrap_or_else(PoisonError::into_inner);
    if fail_fast().should_skip(action) {
        return None;
    }
    let result = apply_action(context, job, key, action).await;
    fail_fast().record_result(action, &result);
    Some(result)
}

/// Applies an action. Returns true if it changed anything.
async fn apply_action(context: &Context, job: &DIJob, key: &Key, action: &Action) -> Result<bool> {
    match action {
        Action::CreatePod(entry) => create_pod(context, job, key, entry).await,
        Action::CreateService(entry) => create_service(context, job, key, entry).await,
        Action::DeletePod { name, uid } => {
            let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.0);
            let deleted = delete_object(context, &api, "pods", name, uid).await?;
            context.pods.record_deletion_request(key, name, uid);
            Ok(deleted)
        }
        Action::StopPod { name, uid } => stop_pod(context, key, name, uid).await,
        Action::DeleteService { name, uid } => {
            let api: Api<Service> = Api::namespaced(context.client.clone(), &key.0);
            let deleted = delete_object(context, &api, "services", name, uid).await?;
            context.services.record_deletion_request(key, name, uid);
            Ok(deleted)
        }
        Action::DeleteJob => {
            // Metadata only: the response may be a job that cannot be decoded.
            let api: Api<PartialObjectMeta<DIJob>> =
                Api::namespaced(context.client.clone(), &key.0);
            let uid = job.uid().unwrap_or_default();
            delete_object(context, &api, "dijobs", &job.name_any(), &uid).await
        }
    }
}

async fn create_pod(context: &Context, job: &DIJob, key: &Key, entry: &PlanEntry) -> Result<bool> {
    let aggregator = context.aggregators.template_for(&key.0);
    let Some(pod) = build_pod(
        job,
        entry,
        aggregator.pod_template(),
        &context.settings.build,
    ) else {
        // The role was removed from the spec, or the AggregatorConfig deleted. The next step
        // reports it.
        return Ok(false);
    };
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.0);
    let (kind, name) = ("pod", entry.name.clone());
    let Some((pod, is_new)) = create_or_get(context, &api, "pods", &pod).await? else {
        return Err(Error::PreviousJobTerminating { kind, name });
    };
    match PodView::new(&pod).filter(|view| view.owner == job.uid()) {
        Some(view) => {
            let is_cached = context.pods.record_created(view);
            if !is_cached && !is_new {
                // The watch has reported the pod as deleted, but it exists: it lost the label that
                // the watch selects by.
                return Err(Error::OwnObjectNotWatched { kind, name });
            }
            Ok(is_new)
        }
        None => Err(name_conflict_error(kind, &pod, job)),
    }
}

async fn create_service(
    context: &Context,
    job: &DIJob,
    key: &Key,
    entry: &PlanEntry,
) -> Result<bool> {
    let api: Api<Service> = Api::namespaced(context.client.clone(), &key.0);
    let service = build_service(job, entry);
    let (kind, name) = ("service", entry.name.clone());
    let Some((service, is_new)) = create_or_get(context, &api, "services", &service).await? else {
        return Err(Error::PreviousJobTerminating { kind, name });
    };
    match ServiceView::new(&service).filter(|view| view.owner == job.uid()) {
        Some(view) => {
            let is_cached = context.services.record_created(view);
            if !is_cached && !is_new {
                // The service lost its label, as above.
                return Err(Error::OwnObjectNotWatched { kind, name });
            }
            Ok(is_new)
        }
        None => Err(name_conflict_error(kind, &service, job)),
    }
}

/// Returns the error for a name that another object has. The garbage collector deletes objects of
/// a previous job, a user must delete all others.
fn name_conflict_error<K: kube::Resource>(kind: &'static str, object: &K, job: &DIJob) -> Error {
    let name = object.name_any();
    let mut owners = object.owner_references().iter();
    let is_terminating = object.meta().deletion_timestamp.is_some()
        || owners.any(|owner| owner.kind == "DIJob" && owner.name == job.name_any());
    if is_terminating {
        Error::PreviousJobTerminating { kind, name }
    } else {
        Error::NameConflict { kind, name }
    }
}

/// Maximum number of tries to create an object that exists at the create, and not at the get.
const MAX_CREATE_TRIES: usize = 3;

/// Creates an object, or gets the existing object of the same name. Returns the object, and true
/// if it is new.
///
/// `None` if each create found an existing object, and each get found none.
async fn create_or_get<K>(
    context: &Context,
    api: &Api<K>,
    resource: &'static str,
    object: &K,
) -> Result<Option<(K, bool)>>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let name = object.name_any();
    let params = PostParams::default();
    for _ in 0..MAX_CREATE_TRIES {
        let operation = || format!("create {resource}/{name}");
        let call = api.create(&params, object);
        match context.write("create", resource, operation, call).await {
            Ok(created) => return Ok(Some((created, true))),
            Err(error) if error.api_status().is_some_and(Status::is_already_exists) => {}
            Err(error) => return Err(error),
        }
        let operation = || format!("get {resource}/{name}");
        let call = api.get_opt(&name);
        if let Some(found) = context.write("get", resource, operation, call).await? {
            return Ok(Some((found, false)));
        }
    }
    Ok(None)
}

/// Sets `activeDeadlineSeconds` of a pod to 1, so that the kubelet stops its containers and keeps
/// its logs. See docs/decisions/0017.
///
/// The API server rejects a patch with the UID of another pod, as UIDs are immutable.
async fn stop_pod(context: &Context, key: &Key, name: &str, uid: &str) -> Result<bool> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.0);
    let patch = json!({"metadata": {"uid": uid}, "spec": {"activeDeadlineSeconds": IMMEDIATE_DEADLINE_SECONDS}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let operation = || format!("patch pods/{name}");
    let call = api.patch(name, &params, &patch);
    match context.write("patch", "pods", operation, call).await {
        Ok(_) => {
            context.pods.record_deadline_request(key, name, uid);
            Ok(true)
        }
        Err(error) if error.api_status().is_some_and(Status::is_not_found) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Deletes the object with this name and UID. Returns false if it does not exist.
async fn delete_object<K>(
    context: &Context,
    api: &Api<K>,
    resource: &'static str,
    name: &str,
    uid: &str,
) -> Result<bool>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let operation = || format!("delete {resource}/{name}");
    let call = api.delete(name, &params);
    let Err(error) = context.write("delete", resource, operation, call).await else {
        return Ok(true);
    };
    match error.api_status() {
        Some(status) if status.is_not_found() => Ok(false),
        // A conflict has two causes: the name belongs to another object, or another client wrote
        // this one at the same time.
        Some(status) if status.is_conflict() => {
            let operation = || format!("get {resource}/{name}");
            let call = api.get_opt(name);
            let found = context.write("get", resource, operation, call).await?;
            if found.is_some_and(|found| found.meta().uid.as_deref() == Some(uid)) {
                return Err(error);
            }
            Ok(false)
        }
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests;
