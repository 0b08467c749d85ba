use std::time::Duration;

use di_api::DIJob;
use kube::core::{
    ApiResource,
    params::{DeleteParams, PropagationPolicy},
};
use serde_json::Value;
use tokio::time::sleep;

use crate::{Cluster, Deadline, DryRun, Error, PreparedObject, Result, resource::Resource};

/// Handling of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cascade {
    /// Dependents are deleted after the object.
    #[default]
    Background,
    /// The object is deleted after its dependents.
    Foreground,
    /// Dependents are kept.
    Orphan,
}

/// Options of a delete request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Handling of dependents.
    pub cascade: Cascade,
    /// Grace period in seconds. `None` uses the default of the server.
    pub grace: Option<u32>,
}

/// Identifies an object.
#[derive(Clone, Debug)]
pub struct ObjectRef {
    /// API resource of the kind.
    pub api: ApiResource,
    /// Namespace. `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
}

impl ObjectRef {
    /// A job in the current namespace.
    pub fn for_job(cluster: &Cluster, name: impl Into<String>) -> Self {
        Self {
            api: ApiResource::erase::<DIJob>(&()),
            namespace: Some(cluster.namespace().name.clone()),
            name: name.into(),
        }
    }

    fn resource_client<'a>(&'a self, cluster: &'a Cluster) -> Resource<'a> {
        Resource::new(cluster, &self.api, self.namespace.as_deref())
    }
}

impl From<PreparedObject> for ObjectRef {
    fn from(ready: PreparedObject) -> Self {
        Self {
            name: ready.name().to_owned(),
            api: ready.api,
            namespace: ready.namespace,
        }
    }
}

/// Requests the deletion of an object. Returns its UID if the response contains it.
pub async fn delete_object(
    cluster: &Cluster,
    target: &ObjectRef,
    options: DeleteOptions,
    dry_run: DryRun,
) -> Result<Option<String>> {
    let resource = target.resource_client(cluster);
    if dry_run == DryRun::Client {
        return Ok(uid_of_response(&resource.get(&target.name).await?));
    }
    let params = DeleteParams {
        propagation_policy: Some(match options.cascade {
            Cascade::Background => PropagationPolicy::Background,
            Cascade::Foreground => PropagationPolicy::Foreground,
            Cascade::Orphan => PropagationPolicy::Orphan,
        }),
        dry_run: dry_run == DryRun::Server,
        grace_period_seconds: options.grace,
        ..DeleteParams::default()
    };
    Ok(uid_of_response(
        &resource.delete(&target.name, &params).await?,
    ))
}

/// The UID of the deleted object.
///
/// The API server returns the object while finalizers or a grace period delay the deletion, or else
/// a
/// Status.
fn uid_of_response(response: &Value) -> Option<String> {
    let uid = response
        .pointer("/metadata/uid")
        .or_else(|| response.pointer("/details/uid"));
    uid.and_then(Value::as_str).map(str::to_owned)
}

/// Waits until the object with this UID is deleted. A new object of the same name is ignored.
///
/// # Errors
/// [`Error::Timeout`] if the object still exists at the deadline.
pub async fn wait_for_deletion(
    cluster: &Cluster,
    target: &ObjectRef,
    uid: Option<&str>,
    deadline: Deadline,
) -> Result<()> {
    const MAX_PAUSE: Duration = Duration::from_secs(1);
    let mut pause = Duration::from_millis(50);
    loop {
        match target.resource_client(cluster).get(&target.name).await {
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error),
            Ok(object) if uid.is_some() && uid_of_response(&object).as_deref() != uid => {
                return Ok(());
            }
            Ok(_) => {}
        }
        if deadline.ends_within(pause) {
            let condition = format!("the condition on {}/{}", target.api.plural, target.name);
            return Err(Error::Timeout(condition));
        }
        sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::uid_of_response;

    #[test]
    fn uid_is_found_in_status_and_object() {
        let status = json!({"kind": "Status", "metadata": {}, "details": {"uid": "a"}});
        let object = json!({"kind": "DIJob", "metadata": {"uid": "b"}});
        assert_eq!(uid_of_response(&status).as_deref(), Some("a"));
        assert_eq!(uid_of_response(&object).as_deref(), Some("b"));
        assert_eq!(uid_of_response(&json!({"kind": "Status"})), None);
    }
}
