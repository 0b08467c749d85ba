//! The requests of actions for Workloads of Kueue.

use di_api::{DIJob, names::kueue};
use di_cache::{Key, QueueApi, kueue_resource};
use di_plan::{
    KueueVersion, Priority, StatusPatch, WorkloadDraft, WorkloadView, new_workload,
    updated_workload,
};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::Value;

use super::objects::{create_or_get, delete_object, ignore_not_found, name_conflict_error};
use crate::{Error, context::Context, error::Result};

const RESOURCE: &str = "workloads";

/// Creates a Workload. Returns false if it exists.
pub(super) async fn create_workload(
    context: &Context,
    job: &DIJob,
    key: &Key,
    draft: &WorkloadDraft,
) -> Result<bool> {
    let Some((api, version)) = workload_api(context, key) else {
        return Ok(false);
    };
    let priority = find_priority(context, version, draft).await?;
    let workload = new_workload(job, draft, version, &priority);
    let created = create_or_get(context, &api, RESOURCE, &workload).await;
    let kind = "Workload";
    let Some((found, is_new)) = created.map_err(Error::map_kueue_error)? else {
        let name = draft.name.clone();
        return Err(Error::PreviousJobTerminating { kind, name });
    };
    let view = WorkloadView::new(&found).filter(|view| view.owner == job.uid());
    let Some(view) = view else {
        return Err(name_conflict_error(kind, &found, job));
    };
    context.workloads.objects.record_created(view);
    Ok(is_new)
}

/// Replaces the pods, queue and priority of a Workload without quota.
pub(super) async fn update_workload(
    context: &Context,
    key: &Key,
    draft: &WorkloadDraft,
    resource_version: &str,
) -> Result<bool> {
    let Some((api, version)) = workload_api(context, key) else {
        return Ok(false);
    };
    let priority = find_priority(context, version, draft).await?;
    let patch = updated_workload(draft, version, &priority, resource_version);
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let operation = || format!("patch {RESOURCE}/{}", draft.name);
    let call = api.patch(&draft.name, &params, &patch);
    let written = context.write("patch", RESOURCE, operation, call).await;
    record_write(context, written)
}

/// Applies a part of the status of a Workload.
pub(super) async fn patch_workload_status(
    context: &Context,
    key: &Key,
    patch: &StatusPatch,
) -> Result<bool> {
    let Some((api, version)) = workload_api(context, key) else {
        return Ok(false);
    };
    let params = PatchParams::apply(patch.field_manager).force();
    let body = Patch::Apply(patch.body(version));
    let operation = || format!("patch {RESOURCE}/{}/status", patch.name);
    let call = api.patch_status(&patch.name, &params, &body);
    let written = context.write("patch", "workloads/status", operation, call);
    record_write(context, written.await)
}

/// Deletes a Workload. Returns false if it does not exist.
pub(super) async fn delete_workload(
    context: &Context,
    key: &Key,
    name: &str,
    uid: &str,
) -> Result<bool> {
    let Some((api, _)) = workload_api(context, key) else {
        return Ok(false);
    };
    let deleted = delete_object(context, &api, RESOURCE, name, uid).await;
    let deleted = deleted.map_err(Error::map_kueue_error)?;
    let objects = &context.workloads.objects;
    objects.record_deletion_request(key, name, uid);
    Ok(deleted)
}

fn workload_api(context: &Context, key: &Key) -> Option<(Api<DynamicObject>, KueueVersion)> {
    let QueueApi::Served(version) = context.workloads.api() else {
        return None;
    };
    let resource = kueue_resource(version, "Workload");
    let api = Api::namespaced_with(context.client.clone(), &key.0, &resource);
    Some((api, version))
}

/// Records the response of a write in the cache. A Workload that is gone was not changed.
fn record_write(context: &Context, written: Result<DynamicObject>) -> Result<bool> {
    let written = ignore_not_found(written.map_err(Error::map_kueue_error))?;
    if let Some(view) = written.as_ref().and_then(WorkloadView::new) {
        context.workloads.objects.record_write(view);
    }
    Ok(written.is_some())
}

/// Finds the priority of a Workload: that of its WorkloadPriorityClass, else of the PriorityClass
/// of its pods, else of the default class of the cluster.
async fn find_priority(
    context: &Context,
    version: KueueVersion,
    draft: &WorkloadDraft,
) -> Result<Priority> {
    if let Some(name) = &draft.workload_class {
        let resource = kueue_resource(version, "WorkloadPriorityClass");
        let api: Api<DynamicObject> = Api::all_with(context.client.clone(), &resource);
        let operation = || format!("get workloadpriorityclasses/{name}");
        let class = context.get("workloadpriorityclasses", operation, api.get(name));
        let class = class.await.map_err(Error::map_kueue_error)?;
        return Ok(Priority {
            class: Some((kueue::GROUP, "WorkloadPriorityClass", name.clone())),
            value: parse_priority(&class.data["value"]),
        });
    }
    let api: Api<PriorityClass> = Api::all(context.client.clone());
    let class = if let Some(name) = &draft.pod_class {
        let operation = || format!("get priorityclasses/{name}");
        let class = context.get("priorityclasses", operation, api.get(name));
        Some(class.await.map_err(Error::map_kueue_error)?)
    } else {
        let operation = || "list priorityclasses".to_owned();
        let params = ListParams::default();
        let classes = context.get("priorityclasses", operation, api.list(&params));
        let classes = classes.await.map_err(Error::map_kueue_error)?;
        let mut classes = classes.into_iter();
        classes.find(|class| class.global_default == Some(true))
    };
    let class = class.map(|class| (class.name_any(), class.value));
    Ok(
        class.map_or_else(Priority::default, |(name, value)| Priority {
            class: Some(("scheduling.k8s.io", "PriorityClass", name)),
            value: value.unwrap_or(0),
        }),
    )
}

fn parse_priority(value: &Value) -> i32 {
    value
        .as_i64()
        .and_then(|value| i32::try_from(value).ok())
        .unwrap_or(0)
}
