use di_api::{AggregatorConfig, DIJob, names};
use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    api::{DeleteParams, ListParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;

use super::{Flavour, objects, place};
use crate::{Cluster, Error, Job, Result, Target, resource::Resource};

/// At once, of questions that do not wait for each other.
const AT_ONCE: usize = 8;

/// What is in a cluster of the orchestrator and of its users.
#[derive(Clone, Debug, Default)]
pub struct Remains {
    /// Its own objects, in an order in which they can go: the definitions and the namespace are not among them.
    pub own: Vec<Target>,
    /// Its namespace.
    pub namespace: Option<Target>,
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
    let mut targets: Vec<Target> = Vec::new();
    // The webhooks first: while they are asked and do not answer, nothing of our kinds can be changed.
    for object in objects(Flavour::Whole, "")?.iter().rev() {
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
    let mut remains = Remains::default();
    for target in there {
        match target.api.kind.as_str() {
            "CustomResourceDefinition" => remains.definitions.push(target),
            "Namespace" => remains.namespace = Some(target),
            _ => remains.own.push(target),
        }
    }
    let jobs = all(cluster, &ApiResource::erase::<DIJob>(&())).await?;
    remains.jobs = jobs.into_iter().map(Job::from).collect();
    let configs = all(cluster, &ApiResource::erase::<AggregatorConfig>(&())).await?;
    let text = |at: &Value| at.as_str().unwrap_or_default().to_owned();
    remains.configs = configs
        .iter()
        .map(|config| &config["metadata"])
        .map(|metadata| (text(&metadata["namespace"]), text(&metadata["name"])))
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

/// Everything of a kind; nothing where the kind is not known.
async fn all(cluster: &Cluster, api: &ApiResource) -> Result<Vec<Value>> {
    let listed = Resource::new(cluster, api, None);
    match listed.list(&ListParams::default()).await {
        Ok(listed) => Ok(listed.items),
        Err(Error::NoSuchResource { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
