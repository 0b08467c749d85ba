//! Creates and deletes any object. Both may be repeated: names and UIDs identify objects.

use std::fmt::Debug;

use di_api::DIJob;
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, PostParams, Preconditions, PropagationPolicy},
    core::Status,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, context::Context, error::Result};

/// Returns the error for a name that another object has. The garbage collector deletes objects of
/// a previous job, a user must delete all others.
pub(super) fn name_conflict_error(
    kind: &'static str,
    object: &impl Resource,
    job: &DIJob,
) -> Error {
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
pub(super) async fn create_or_get<K: Resource + Clone + Debug + Serialize + DeserializeOwned>(
    context: &Context,
    api: &Api<K>,
    resource: &'static str,
    object: &K,
) -> Result<Option<(K, bool)>> {
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

/// Maps the result of a write of an object that is gone to `None`.
pub(super) fn ignore_not_found<K>(written: Result<K>) -> Result<Option<K>> {
    match written {
        Err(error) if error.api_status().is_some_and(Status::is_not_found) => Ok(None),
        written => written.map(Some),
    }
}

/// Deletes the object with this name and UID. Returns false if it does not exist.
pub(super) async fn delete_object<K: Resource + Clone + Debug + DeserializeOwned>(
    context: &Context,
    api: &Api<K>,
    resource: &'static str,
    name: &str,
    uid: &str,
) -> Result<bool> {
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
