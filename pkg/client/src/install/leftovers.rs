use di_api::{AggregatorConfig, DIJob, names};
use di_plan::GangScheduler;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{apps::v1::Deployment, rbac::v1::ClusterRole};
use kube::{
    api::{DeleteParams, ListParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;

use super::install_objects::{InstallOptions, InstallVariant, install_objects};
use crate::{
    Cluster, Error, Job, ObjectRef, Result,
    connection::resource::{Resource, resource_of},
    jobs::deletion::uid_of_response,
};

/// Maximum number of concurrent reads.
const MAX_CONCURRENT_READS: usize = 8;
/// The ClusterRole that only the full installation has.
///
/// Uninstall deletes it last of the objects of the full installation, so a repeated uninstall still
/// recognizes the variant.
const CLUSTER_ROLE: &str = "di-orchestrator";

/// Objects of the orchestrator and its users that exist in a cluster.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    /// The installed variant.
    pub variant: InstallVariant,
    /// Objects of the orchestrator in deletion order, without CustomResourceDefinitions and
    /// namespace.
    pub own: Vec<ObjectRef>,
    /// Namespace of the orchestrator.
    pub namespace: Option<ObjectRef>,
    /// Names of foreign Deployments in that namespace.
    pub others: Vec<String>,
    /// The CustomResourceDefinitions. Deleting them deletes all jobs and configurations.
    pub definitions: Vec<ObjectRef>,
    /// Jobs in all namespaces.
    pub jobs: Vec<Job>,
    /// Namespace and name of every AggregatorConfig.
    pub configs: Vec<(String, String)>,
}

impl Leftovers {
    /// Whether no object of the orchestrator exists.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.namespace.is_none() && self.definitions.is_empty()
    }
}

/// Finds all objects of the orchestrator and its users.
pub async fn find_leftovers(cluster: &Cluster) -> Result<Leftovers> {
    let variant = find_variant(cluster).await?;
    let mut targets: Vec<ObjectRef> = Vec::new();
    let options = InstallOptions {
        variant,
        kueue: true,
        // The permissions are the same with each scheduler that has groups.
        gang_scheduler: Some(GangScheduler::Volcano),
    };
    // Webhook configurations first: without a webhook server they would block changes of jobs.
    let objects = install_objects(&options, "")?;
    targets.extend(objects.iter().rev().map(ObjectRef::from));
    targets.extend([
        generated_object("", "v1", "Secret", "di-webhook-cert"),
        generated_object("coordination.k8s.io", "v1", "Lease", "di-orchestrator"),
    ]);
    let existing: Vec<ObjectRef> = stream::iter(targets)
        .map(async |target| {
            Ok::<_, Error>(object_exists(cluster, &target).await?.then_some(target))
        })
        .buffered(MAX_CONCURRENT_READS)
        .try_filter_map(async |found| Ok(found))
        .try_collect()
        .await?;
    let mut leftovers = Leftovers {
        variant,
        ..Leftovers::default()
    };
    for target in existing {
        match target.api.kind.as_str() {
            "CustomResourceDefinition" => leftovers.definitions.push(target),
            "Namespace" => leftovers.namespace = Some(target),
            _ => leftovers.own.push(target),
        }
    }
    let jobs = list_all(cluster, &ApiResource::erase::<DIJob>(&()), None).await?;
    leftovers.jobs = jobs.into_iter().map(Job::from).collect();
    let configs = list_all(cluster, &ApiResource::erase::<AggregatorConfig>(&()), None).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    leftovers.configs = configs
        .iter()
        .map(|config| &config["metadata"])
        .map(|metadata| (text(&metadata["namespace"]), text(&metadata["name"])))
        .collect();
    let api = ApiResource::erase::<Deployment>(&());
    let deployments = list_all(cluster, &api, Some(names::SYSTEM_NAMESPACE)).await?;
    leftovers.others = deployments
        .iter()
        .map(|deployment| text(&deployment["metadata"]["name"]))
        .filter(|name| name != names::WEBHOOK_SERVICE)
        .collect();
    Ok(leftovers)
}

/// Deletes an object and returns its UID. A missing object is no error.
///
/// With `dry_run` the server only checks the request.
pub async fn delete_leftover(
    cluster: &Cluster,
    target: &ObjectRef,
    dry_run: bool,
) -> Result<Option<String>> {
    let params = DeleteParams {
        dry_run,
        ..DeleteParams::background()
    };
    let resource = Resource::new(cluster, &target.api, target.namespace.as_deref());
    match resource.delete(&target.name, &params).await {
        Ok(response) => Ok(uid_of_response(&response)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

impl From<&Value> for ObjectRef {
    fn from(object: &Value) -> Self {
        let (api, namespace) = resource_of(object);
        let name = object["metadata"]["name"].as_str();
        Self {
            api,
            namespace: namespace.map(str::to_owned),
            name: name.unwrap_or_default().to_owned(),
        }
    }
}

impl From<&Job> for ObjectRef {
    fn from(job: &Job) -> Self {
        Self {
            api: ApiResource::erase::<DIJob>(&()),
            namespace: Some(job.namespace().to_owned()),
            name: job.name().to_owned(),
        }
    }
}

/// Finds the installed variant by its ClusterRole.
///
/// The Service does not show it: another operator has an endpoint of the same name.
async fn find_variant(cluster: &Cluster) -> Result<InstallVariant> {
    let cluster_role = ObjectRef {
        api: ApiResource::erase::<ClusterRole>(&()),
        namespace: None,
        name: CLUSTER_ROLE.to_owned(),
    };
    Ok(if object_exists(cluster, &cluster_role).await? {
        InstallVariant::Full
    } else {
        InstallVariant::WebhookOnly
    })
}

/// An object that the running orchestrator creates.
fn generated_object(group: &str, version: &str, kind: &str, name: &str) -> ObjectRef {
    ObjectRef {
        api: ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)),
        namespace: Some(names::SYSTEM_NAMESPACE.to_owned()),
        name: name.to_owned(),
    }
}

async fn object_exists(cluster: &Cluster, target: &ObjectRef) -> Result<bool> {
    let resource = Resource::new(cluster, &target.api, target.namespace.as_deref());
    match resource.get(&target.name).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Lists all objects of a kind in one or all namespaces. Empty if the kind is unknown.
async fn list_all(
    cluster: &Cluster,
    api: &ApiResource,
    namespace: Option<&str>,
) -> Result<Vec<Value>> {
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
    fn cluster_role_is_deleted_last_of_full_installation() {
        let names_of = |variant| -> Vec<String> {
            let options = InstallOptions {
                variant,
                kueue: variant == InstallVariant::Full,
                gang_scheduler: (variant == InstallVariant::Full).then_some(GangScheduler::Volcano),
            };
            let objects = install_objects(&options, "").unwrap();
            let in_order = objects.iter().rev();
            in_order
                .map(|one| format!("{} {}", one["kind"], one["metadata"]["name"]))
                .collect()
        };
        let webhooks = names_of(InstallVariant::WebhookOnly);
        let mut full = names_of(InstallVariant::Full);
        full.retain(|one| !webhooks.contains(one));
        let cluster_role = format!("\"ClusterRole\" \"{CLUSTER_ROLE}\"");
        assert_eq!(full.last(), Some(&cluster_role));
        assert!(full.iter().any(|one| one.contains(names::SERVER_SERVICE)));
        assert!(full.iter().any(|one| one.contains("di-orchestrator-kueue")));
        assert!(full.iter().any(|one| one.contains("di-orchestrator-gang")));
    }
}
