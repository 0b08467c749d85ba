//! The requests of actions. Creates and deletes may be repeated: names and UIDs identify objects.

use std::fmt::Debug;

use di_api::{DIJob, PlanEntry};
use di_cache::{Key, ObjectCache, View};
use di_plan::{IMMEDIATE_DEADLINE_SECONDS, PodView, ServiceView, build_pod, build_service};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
    core::{PartialObjectMeta, Status},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::{Action, Error, context::Context, error::Result};

/// A kind of object that jobs own.
trait Child:
    kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
    const KIND: &'static str;
    const RESOURCE: &'static str;
    type View: View;

    fn cache(context: &Context) -> &ObjectCache<Self::View>;

    /// Returns the view for the cache, if the job owns the object.
    fn view_owned_by(&self, job: &DIJob) -> Option<Self::View>;
}

impl Child for Pod {
    const KIND: &'static str = "pod";
    const RESOURCE: &'static str = "pods";
    type View = PodView;

    fn cache(context: &Context) -> &ObjectCache<PodView> {
        &context.pods
    }

    fn view_owned_by(&self, job: &DIJob) -> Option<PodView> {
        PodView::new(self).filter(|view| view.owner == job.uid())
    }
}

impl Child for Service {
    const KIND: &'static str = "service";
    const RESOURCE: &'static str = "services";
    type View = ServiceView;

    fn cache(context: &Context) -> &ObjectCache<ServiceView> {
        &context.services
    }

    fn view_owned_by(&self, job: &DIJob) -> Option<ServiceView> {
        ServiceView::new(self).filter(|view| view.owner == job.uid())
    }
}

/// Sends an action. Returns true if it changed anything.
pub(super) async fn send_action(
    context: &Context,
    job: &DIJob,
    key: &Key,
    action: &Action,
) -> Result<bool> {
    match action {
        Action::CreatePod(entry) => create_pod(context, job, key, entry).await,
        Action::CreateService(entry) => {
            create_child(context, job, key, &build_service(job, entry)).await
        }
        Action::DeletePod { name, uid } => delete_child::<Pod>(context, key, name, uid).await,
        Action::StopPod { name, uid } => stop_pod(context, key, name, uid).await,
        Action::DeleteService { name, uid } => {
            delete_child::<Service>(context, key, name, uid).await
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
    let settings = &context.settings.build;
    match build_pod(job, entry, aggregator.pod_template(), settings) {
        Some(pod) => create_child(context, job, key, &pod).await,
        // The role was removed from the spec, or the AggregatorConfig deleted. The next step
        // reports it.
        None => Ok(false),
    }
}

/// Creates an object of the job. Returns false if it exists.
async fn create_child<K: Child>(
    context: &Context,
    job: &DIJob,
    key: &Key,
    object: &K,
) -> Result<bool> {
    let (kind, name) = (K::KIND, object.name_any());
    let Some((found, is_new)) = create_or_get(context, key, object).await? else {
        return Err(Error::PreviousJobTerminating { kind, name });
    };
    let Some(view) = found.view_owned_by(job) else {
        return Err(name_conflict_error(&found, job));
    };
    let is_cached = K::cache(context).record_created(view);
    if !is_cached && !is_new {
        // The watch has reported the object as deleted, but it exists: it lost the label that the
        // watch selects by.
        return Err(Error::OwnObjectNotWatched { kind, name });
    }
    Ok(is_new)
}

/// Returns the error for a name that another object has. The garbage collector deletes objects of
/// a previous job, a user must delete all others.
fn name_conflict_error<K: Child>(object: &K, job: &DIJob) -> Error {
    let (kind, name) = (K::KIND, object.name_any());
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
async fn create_or_get<K: Child>(
    context: &Context,
    key: &Key,
    object: &K,
) -> Result<Option<(K, bool)>> {
    let api = Api::<K>::namespaced(context.client.clone(), &key.0);
    let (resource, name) = (K::RESOURCE, object.name_any());
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

/// Deletes the object of a job with this name and UID. Returns false if it does not exist.
async fn delete_child<K: Child>(
    context: &Context,
    key: &Key,
    name: &str,
    uid: &str,
) -> Result<bool> {
    let api = Api::<K>::namespaced(context.client.clone(), &key.0);
    let deleted = delete_object(context, &api, K::RESOURCE, name, uid).await?;
    K::cache(context).record_deletion_request(key, name, uid);
    Ok(deleted)
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
    K: kube::Resource + Clone + Debug + DeserializeOwned,
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
