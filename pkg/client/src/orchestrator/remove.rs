use di_api::{AggregatorConfig, DIJob, names};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{apps::v1::Deployment, rbac::v1::ClusterRole};
use kube::{
    api::{DeleteParams, ListParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;

use super::{Flavour, objects, place};
use crate::{Cluster, Error, Job, Result, Target, resource::Resource};

/// At once, of questions that do not wait for each other.
const AT_ONCE: usize = 8;
/// The rights to run jobs. The whole alone has them, and of what it alone has they go last: an uninstall that goes on later finds them.
const RIGHTS: &str = "di-orchestrator";

/// What is in a cluster of the orchestrator and of its users.
#[derive(Clone, Debug, Default)]
pub struct Remains {
    /// What was installed; of the whole, its last objects are those of the admission checks.
    pub flavour: Flavour,
    /// Its own objects, in an order in which they can go: the definitions and the namespace are not among them.
    pub own: Vec<Target>,
    /// Its namespace.
    pub namespace: Option<Target>,
    /// Names of Deployments in its namespace that are not its own.
    pub others: Vec<String>,
    /// The definitions; with them, everything of their kinds goes.
    pub definitions: Vec<Target>,
    /// Jobs of all namespaces.
    pub jobs: Vec<Job>,
    /// AggregatorConfigs of all namespaces, as namespace and name.
    pub configs: Vec<(String, String)>,
}

impl Remains {
    /// Whether there is nothing of the orchestrator.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.namespace.is_none() && self.definitions.is_empty()
    }
}

/// What is there of the orchestrator, and of its users.
pub async fn remains(cluster: &Cluster) -> Result<Remains> {
    let flavour = flavour(cluster).await?;
    let mut targets: Vec<Target> = Vec::new();
    // The webhooks first: while they are asked and do not answer, nothing of our kinds can be changed.
    for object in objects(flavour, "")?.iter().rev() {
        let (api, namespace) = place(object);
        targets.push(Target {
            api,
            namespace: namespace.map(str::to_owned),
            name: object["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        });
    }
    targets.extend([
        made("", "v1", "Secret", "di-webhook-cert"),
        made("coordination.k8s.io", "v1", "Lease", "di-orchestrator"),
    ]);
    let there: Vec<Target> = stream::iter(targets)
        .map(async |target| Ok::<_, Error>(exists(cluster, &target).await?.then_some(target)))
        .buffered(AT_ONCE)
        .try_filter_map(async |found| Ok(found))
        .try_collect()
        .await?;
    let mut remains = Remains {
        flavour,
        ..Remains::default()
    };
    for target in there {
        match target.api.kind.as_str() {
            "CustomResourceDefinition" => remains.definitions.push(target),
            "Namespace" => remains.namespace = Some(target),
            _ => remains.own.push(target),
        }
    }
    let jobs = all(cluster, &ApiResource::erase::<DIJob>(&()), None).await?;
    remains.jobs = jobs.into_iter().map(Job::from).collect();
    let configs = all(cluster, &ApiResource::erase::<AggregatorConfig>(&()), None).await?;
    let text = |at: &Value| at.as_str().unwrap_or_default().to_owned();
    remains.configs = configs
        .iter()
        .map(|config| &config["metadata"])
        .map(|metadata| (text(&metadata["namespace"]), text(&metadata["name"])))
        .collect();
    let api = ApiResource::erase::<Deployment>(&());
    let deployments = all(cluster, &api, Some(names::SYSTEM_NAMESPACE)).await?;
    remains.others = deployments
        .iter()
        .map(|deployment| text(&deployment["metadata"]["name"]))
        .filter(|name| name != names::WEBHOOK_SERVICE)
        .collect();
    Ok(remains)
}

/// Deletes something, or has the server check that it could; the answer is its UID. What is gone is deleted.
pub async fn remove(cluster: &Cluster, target: &Target, dry_run: bool) -> Result<Option<String>> {
    let params = DeleteParams {
        dry_run,
        ..DeleteParams::background()
    };
    let resource = Resource::new(cluster, &target.api, target.namespace.as_deref());
    match resource.delete(&target.name, &params).await {
        Ok(answer) => {
            let uid = answer
                .pointer("/metadata/uid")
                .or_else(|| answer.pointer("/details/uid"));
            Ok(uid.and_then(Value::as_str).map(str::to_owned))
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

impl From<&Job> for Target {
    fn from(job: &Job) -> Self {
        Self {
            api: ApiResource::erase::<DIJob>(&()),
            namespace: Some(job.namespace().to_owned()),
            name: job.name().to_owned(),
        }
    }
}

/// What was installed: by the rights, since another operator has an endpoint of the same name.
async fn flavour(cluster: &Cluster) -> Result<Flavour> {
    let rights = Target {
        api: ApiResource::erase::<ClusterRole>(&()),
        namespace: None,
        name: RIGHTS.to_owned(),
    };
    Ok(if exists(cluster, &rights).await? {
        Flavour::Whole
    } else {
        Flavour::WebhookOnly
    })
}

/// What the running orchestrator has made for itself.
fn made(group: &str, version: &str, kind: &str, name: &str) -> Target {
    Target {
        api: ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)),
        namespace: Some(names::SYSTEM_NAMESPACE.to_owned()),
        name: name.to_owned(),
    }
}

async fn exists(cluster: &Cluster, target: &Target) -> Result<bool> {
    let resource = Resource::new(cluster, &target.api, target.namespace.as_deref());
    match resource.get(&target.name).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Everything of a kind, in one namespace or in all; nothing where the kind is not known.
async fn all(cluster: &Cluster, api: &ApiResource, namespace: Option<&str>) -> Result<Vec<Value>> {
    let listed = Resource::new(cluster, api, namespace);
    match listed.list(&ListParams::default()).await {
        Ok(listed) => Ok(listed.items),
        Err(Error::NoSuchResource { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rights_tell_the_flavour_until_all_that_it_alone_has_is_gone() {
        let named = |flavour| -> Vec<String> {
            let objects = objects(flavour, "").unwrap();
            let in_order = objects.iter().rev();
            in_order
                .map(|one| format!("{} {}", one["kind"], one["metadata"]["name"]))
                .collect()
        };
        let checks = named(Flavour::WebhookOnly);
        let mut whole = named(Flavour::Whole);
        whole.retain(|one| !checks.contains(one));
        let rights = format!("\"ClusterRole\" \"{RIGHTS}\"");
        assert_eq!(whole.last(), Some(&rights));
        assert!(whole.iter().any(|one| one.contains(names::SERVER_SERVICE)));
    }
}
