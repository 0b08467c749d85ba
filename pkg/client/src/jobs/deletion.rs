use std::time::Duration;

use kube::core::{
    ApiResource,
    params::{DeleteParams, Preconditions},
};
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    Cluster, Deadline, Error, Result, connection::resource::Resource, jobs::job::api_resource,
};

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
    fn resource_client<'a>(&'a self, cluster: &'a Cluster) -> Resource<'a> {
        Resource::new(cluster, &self.api, self.namespace.as_deref())
    }
}

/// Deletes the job with this UID in the current namespace, as `kubectl delete dijob` does. A new
/// job of the same name is kept.
pub async fn delete_job(cluster: &Cluster, name: &str, uid: &str) -> Result<()> {
    let api = api_resource();
    let resource = Resource::new(cluster, &api, Some(&cluster.namespace().name));
    let params = DeleteParams::background().preconditions(Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    });
    resource.delete(name, &params).await?;
    Ok(())
}

/// The UID of the deleted object.
///
/// The API server returns the object while finalizers or a grace period delay the deletion, or else
/// a Status.
pub(crate) fn uid_of_response(response: &Value) -> Option<String> {
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
            let condition = format!("the deletion of {}/{}", target.api.plural, target.name);
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
