//! The requests of actions for groups of the gang scheduler.

use di_api::DIJob;
use di_cache::{Key, OptionalApi, group_resource};
use di_plan::{
    GangScheduler, GroupKind, GroupView, PodView, group_size_patch, leave_group_patch, new_group,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::objects::{create_or_get, delete_object, ignore_not_found};
use crate::{Error, context::Context, error::Result};

const RESOURCE: &str = GroupKind::PLURAL;

/// Creates the group of a job. Returns false if it exists.
pub(super) async fn create_group(
    context: &Context,
    job: &DIJob,
    key: &Key,
    min_member: i32,
) -> Result<bool> {
    let Some((api, scheduler)) = group_api(context, key) else {
        return Ok(false);
    };
    let Some(group) = new_group(job, scheduler, min_member) else {
        return Ok(false);
    };
    let created = create_or_get(context, &api, RESOURCE, &group).await;
    let created = created.map_err(|error| error.map_gang_forbidden(scheduler))?;
    let Some((found, is_new)) = created else {
        let (kind, name) = (GroupKind::KIND, group.name_any());
        return Err(Error::PreviousJobTerminating { kind, name });
    };
    let view = GroupView::new(&found).filter(|view| view.owner == job.uid());
    let Some(view) = view else {
        let name = found.name_any();
        return Err(Error::GangNameTaken { name });
    };
    context.groups.objects.record_created(view);
    Ok(is_new)
}

/// Changes how many pods of a group start together. Returns false if the group does not exist.
pub(super) async fn update_group(
    context: &Context,
    key: &Key,
    name: &str,
    uid: &str,
    min_member: i32,
) -> Result<bool> {
    let Some((api, scheduler)) = group_api(context, key) else {
        return Ok(false);
    };
    let patch = for_uid(group_size_patch(scheduler, min_member), uid);
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let operation = || format!("patch {RESOURCE}/{name}");
    let call = api.patch(name, &params, &patch);
    let written = context.write("patch", RESOURCE, operation, call).await;
    let written = written.map_err(|error| error.map_gang_forbidden(scheduler));
    let written = ignore_not_found(written)?;
    if let Some(view) = written.as_ref().and_then(GroupView::new) {
        context.groups.objects.record_write(view);
    }
    Ok(written.is_some())
}

/// Deletes a group. Returns false if it does not exist.
pub(super) async fn delete_group(
    context: &Context,
    key: &Key,
    name: &str,
    uid: &str,
) -> Result<bool> {
    let Some((api, scheduler)) = group_api(context, key) else {
        return Ok(false);
    };
    let deleted = delete_object(context, &api, RESOURCE, name, uid).await;
    let deleted = deleted.map_err(|error| error.map_gang_forbidden(scheduler))?;
    let objects = &context.groups.objects;
    objects.record_deletion_request(key, name, uid);
    Ok(deleted)
}

/// Removes a pod from its group. Returns false if the pod does not exist or stays.
pub(super) async fn leave_group(
    context: &Context,
    key: &Key,
    name: &str,
    uid: &str,
) -> Result<bool> {
    let scheduler = context.settings.build.gang.as_ref();
    let Some(patch) = scheduler.and_then(leave_group_patch) else {
        return Ok(false);
    };
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.0);
    let (params, patch) = (PatchParams::default(), Patch::Merge(for_uid(patch, uid)));
    let operation = || format!("patch pods/{name}");
    let call = api.patch(name, &params, &patch);
    let written = context.write("patch", "pods", operation, call).await;
    let written = ignore_not_found(written)?;
    let Some(view) = written.as_ref().and_then(PodView::new) else {
        return Ok(false);
    };
    // A pod of another scheduler, which the orchestrator used before, stays in its group.
    let has_left = !view.in_gang;
    context.pods.record_write(view);
    Ok(has_left)
}

/// Adds the UID of the object to a merge patch. The API server rejects a patch with the UID of
/// another object, as UIDs are immutable.
fn for_uid(mut patch: Value, uid: &str) -> Value {
    patch["metadata"]["uid"] = json!(uid);
    patch
}

fn group_api<'a>(
    context: &'a Context,
    key: &Key,
) -> Option<(Api<DynamicObject>, &'a GangScheduler)> {
    let scheduler = context.settings.build.gang.as_ref()?;
    let kind = scheduler.group_kind()?;
    if context.groups.api() != OptionalApi::Served(()) {
        return None;
    }
    let resource = group_resource(kind);
    let api = Api::namespaced_with(context.client.clone(), &key.0, &resource);
    Some((api, scheduler))
}
