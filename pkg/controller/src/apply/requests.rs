//! The requests of actions.

use std::fmt::Debug;

use di_api::{DIJob, PlanEntry};
use di_cache::Key;
use di_plan::{
    IMMEDIATE_DEADLINE_SECONDS, NewPod, PodBuilder, PodView, ServiceView, build_service,
    controlling_job,
};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::{NamespaceResourceScope, PartialObjectMeta, Status},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use super::{
    groups::{create_group, delete_group, leave_group, update_group},
    objects::{create_or_get, delete_object, name_conflict_error},
    workloads::{create_workload, delete_workload, patch_workload_status, update_workload},
};
use crate::{Action, Error, context::Context, error::Result};

/// Sends an action. Returns true if it changed anything.
pub(super) async fn send_action(
    context: &Context,
    pods: &PodBuilder<'_>,
    job: &DIJob,
    key: &Key,
    action: &Action,
) -> Result<bool> {
    match action {
        Action::CreatePod(entry) => create_pod(context, pods, job, key, entry).await,
        Action::CreateService(entry) => {
            let record = |service: &Service| {
                let view = ServiceView::new(service).filter(|view| view.owner == job.uid())?;
                Some(context.services.record_created(view))
            };
            let (api, service) = (namespaced(context, key), build_service(job, entry));
            create_child(
                context,
                job,
                &api,
                ("service", "services"),
                &service,
                record,
            )
            .await
        }
        Action::DeletePod { name, uid } => {
            let api: Api<Pod> = namespaced(context, key);
            let deleted = delete_object(context, &api, "pods", name, uid).await?;
            context.pods.record_deletion_request(key, name, uid);
            Ok(deleted)
        }
        Action::StopPod { name, uid } => stop_pod(context, key, name, uid).await,
        Action::DeleteService { name, uid } => {
            let api: Api<Service> = namespaced(context, key);
            let deleted = delete_object(context, &api, "services", name, uid).await?;
            context.services.record_deletion_request(key, name, uid);
            Ok(deleted)
        }
        Action::CreateWorkload(draft) => create_workload(context, job, key, draft).await,
        Action::UpdateWorkload {
            draft,
            resource_version,
        } => update_workload(context, key, draft, resource_version).await,
        Action::PatchWorkloadStatus(patch) => patch_workload_status(context, key, patch).await,
        Action::DeleteWorkload { name, uid } => delete_workload(context, key, name, uid).await,
        Action::CreateGroup { min_member } => create_group(context, job, key, *min_member).await,
        Action::UpdateGroup {
            name,
            uid,
            min_member,
        } => update_group(context, key, name, uid, *min_member).await,
        Action::DeleteGroup { name, uid } => delete_group(context, key, name, uid).await,
        Action::LeaveGroup { name, uid } => leave_group(context, key, name, uid).await,
        Action::DeleteJob => {
            // Metadata only: the response may be a job that cannot be decoded.
            let api: Api<PartialObjectMeta<DIJob>> = namespaced(context, key);
            let uid = job.uid().unwrap_or_default();
            delete_object(context, &api, "dijobs", &job.name_any(), &uid).await
        }
    }
}

fn namespaced<K>(context: &Context, key: &Key) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(context.client.clone(), &key.0)
}

async fn create_pod(
    context: &Context,
    pods: &PodBuilder<'_>,
    job: &DIJob,
    key: &Key,
    entry: &PlanEntry,
) -> Result<bool> {
    let Some(pod) = pods.build_pod(entry) else {
        // The role was removed from the spec, or the AggregatorConfig deleted. The next step
        // reports it.
        return Ok(false);
    };
    let record = |pod: &NewPod| {
        let pod = pod.decode().ok()?;
        let view = PodView::new(&pod).filter(|view| view.owner == job.uid())?;
        Some(context.pods.record_created(view))
    };
    let api = namespaced(context, key);
    create_child(context, job, &api, ("pod", "pods"), &pod, record).await
}

/// Creates an object of the job. Returns false if it exists.
///
/// `record` adds an object to the cache if the job owns it, and returns false if the watch has
/// reported the object as deleted. An object without the label of the job is deleted.
async fn create_child<K: Resource + Clone + Debug + Serialize + DeserializeOwned>(
    context: &Context,
    job: &DIJob,
    api: &Api<K>,
    (kind, resource): (&'static str, &'static str),
    object: &K,
    record: impl FnOnce(&K) -> Option<bool>,
) -> Result<bool> {
    let name = object.name_any();
    let Some((found, is_new)) = create_or_get(context, api, resource, object).await? else {
        return Err(Error::PreviousJobTerminating { kind, name });
    };
    match record(&found) {
        Some(true) => return Ok(is_new),
        Some(false) if is_new => return Ok(true),
        _ => {}
    }
    if controlling_job(&found) != job.uid() {
        return Err(name_conflict_error(kind, &found, job));
    }
    // It has lost the label that the watch selects by.
    if !is_new {
        let uid = found.uid().unwrap_or_default();
        delete_object(context, api, resource, &name, &uid).await?;
    }
    Err(Error::OwnObjectNotWatched { kind, name })
}

/// Sets `activeDeadlineSeconds` of a pod to 1, so that the kubelet stops its containers and keeps
/// its logs. See docs/decisions/0017.
///
/// The API server rejects a patch with the UID of another pod, as UIDs are immutable.
async fn stop_pod(context: &Context, key: &Key, name: &str, uid: &str) -> Result<bool> {
    let api: Api<Pod> = namespaced(context, key);
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
