use std::time::Duration;

use di_api::DIJob;
use kube::core::{
    ApiResource,
    params::{DeleteParams, PropagationPolicy},
};
use serde_json::Value;
use tokio::time::sleep;

use crate::{Cluster, Deadline, DryRun, Error, Ready, Result, resource::Resource};

/// What becomes of the objects that belong to a deleted one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cascade {
    /// They are deleted after it.
    #[default]
    Background,
    /// It goes only when they are gone.
    Foreground,
    /// They stay.
    Orphan,
}

/// How objects are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// What becomes of those that belong to them.
    pub cascade: Cascade,
    /// Seconds that they are given to end; none leaves it to the server.
    pub grace: Option<u32>,
}

/// An object to be deleted.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where the server keeps its kind.
    pub api: ApiResource,
    /// Its namespace; none for kinds that belong to the whole cluster.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl Target {
    /// A job of the cluster's current namespace.
    pub fn job(cluster: &Cluster, name: impl Into<String>) -> Self {
        Self {
            api: ApiResource::erase::<DIJob>(&()),
            namespace: Some(cluster.namespace().name.clone()),
            name: name.into(),
        }
    }

    fn resource<'a>(&'a self, cluster: &'a Cluster) -> Resource<'a> {
        Resource::new(cluster, &self.api, self.namespace.as_deref())
    }
}

impl From<Ready> for Target {
    fn from(ready: Ready) -> Self {
        Self {
            name: ready.name().to_owned(),
            api: ready.api,
            namespace: ready.namespace,
        }
    }
}

/// Asks for an object to be deleted; the answer is its UID, where the server tells it.
pub async fn delete(
    cluster: &Cluster,
    target: &Target,
    how: Deletion,
    dry_run: DryRun,
) -> Result<Option<String>> {
    let resource = target.resource(cluster);
    if dry_run == DryRun::Client {
        return Ok(uid(&resource.get(&target.name).await?));
    }
    let params = DeleteParams {
        propagation_policy: Some(match how.cascade {
            Cascade::Background => PropagationPolicy::Background,
            Cascade::Foreground => PropagationPolicy::Foreground,
            Cascade::Orphan => PropagationPolicy::Orphan,
        }),
        dry_run: dry_run == DryRun::Server,
        grace_period_seconds: how.grace,
        ..DeleteParams::default()
    };
    Ok(uid(&resource.delete(&target.name, &params).await?))
}

/// The server answers with the object while something still holds it, and with a Status once it is gone.
fn uid(answer: &Value) -> Option<String> {
    let uid = answer
        .pointer("/metadata/uid")
        .or_else(|| answer.pointer("/details/uid"));
    uid.and_then(Value::as_str).map(str::to_owned)
}

/// Waits until the object of this UID is gone, whatever took its name since.
///
/// # Errors
/// [`Error::Timeout`] when it is still there at the deadline.
pub async fn await_deletion(
    cluster: &Cluster,
    target: &Target,
    uid: Option<&str>,
    deadline: Deadline,
) -> Result<()> {
    const SLOWEST: Duration = Duration::from_secs(1);
    let mut pause = Duration::from_millis(50);
    loop {
        match target.resource(cluster).get(&target.name).await {
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error),
            Ok(object) if uid.is_some() && self::uid(&object).as_deref() != uid => return Ok(()),
            Ok(_) => {}
        }
        if deadline.comes_within(pause) {
            let what = format!("the condition on {}/{}", target.api.plural, target.name);
            return Err(Error::Timeout(what));
        }
        sleep(pause).await;
        pause = (pause * 2).min(SLOWEST);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::uid;

    #[test]
    fn the_uid_is_found_in_both_answers() {
        let status = json!({"kind": "Status", "metadata": {}, "details": {"uid": "a"}});
        let object = json!({"kind": "DIJob", "metadata": {"uid": "b"}});
        assert_eq!(uid(&status).as_deref(), Some("a"));
        assert_eq!(uid(&object).as_deref(), Some("b"));
        assert_eq!(uid(&json!({"kind": "Status"})), None);
    }
}
