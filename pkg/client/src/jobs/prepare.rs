use std::collections::BTreeSet;

use di_api::{
    AggregatorConfig, DIJob, names,
    validation::{self, Fault, Valid},
};
use kube::{
    core::{ApiResource, GroupVersion, GroupVersionKind},
    discovery::{self, Scope},
    error::{DiscoveryError, Error as KubeError},
};
use serde_json::Value;

use crate::{Cluster, Document, Error, Namespace, Rejected, Result, connection::names::name_fault};

/// An object with its API resource and namespace.
#[derive(Clone, Debug)]
pub struct PreparedObject {
    /// File or `STDIN`.
    pub origin: String,
    /// The object as written.
    pub object: Value,
    /// API resource of the kind.
    pub api: ApiResource,
    /// Namespace. `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
}

impl PreparedObject {
    /// Name of the object. Empty if the server generates it.
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }
}

/// Resolves the API resource of every document and checks all documents.
///
/// Foreign kinds need a cluster for discovery.
///
/// # Errors
/// [`Error::Rejected`] with the faults of all documents.
pub async fn prepare_objects(
    cluster: Option<&Cluster>,
    namespace: &Namespace,
    documents: Vec<Document>,
) -> Result<Vec<PreparedObject>> {
    let (mut ready, mut rejected, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for document in documents {
        let mut faults = Vec::new();
        let resolved = resolve_resource(cluster, namespace, &document.object, &mut faults).await?;
        faults.extend(name_faults(&document.object));
        if resolved.is_some() {
            // The rules of this version do not apply to other versions.
            faults.extend(validation_faults(&document.object, cluster.is_some()));
        }
        if let Some((api, namespace)) = resolved {
            let one = PreparedObject {
                origin: document.origin.clone(),
                object: document.object.clone(),
                api,
                namespace,
            };
            let key = (
                one.api.group.clone(),
                one.api.kind.clone(),
                one.namespace.clone(),
                one.name().to_owned(),
            );
            if !one.name().is_empty() && !seen.insert(key) {
                faults.push(
                    "metadata.name: Duplicate value: the manifests contain this object twice"
                        .to_owned(),
                );
            }
            ready.push(one);
        }
        if !faults.is_empty() {
            rejected.push(Rejected {
                object: describe_object(&document.object),
                origin: document.origin,
                faults,
            });
        }
    }
    if rejected.is_empty() {
        Ok(ready)
    } else {
        Err(Error::Rejected(rejected))
    }
}

/// Checks documents offline. Returns warnings.
///
/// # Errors
/// [`Error::InvalidDocuments`] with the faults of all documents.
pub fn check_documents(documents: &[Document]) -> Result<Vec<String>> {
    let (mut warnings, mut rejected) = (Vec::new(), Vec::new());
    for document in documents {
        let object = &document.object;
        let faults = if let Some(fault) = kind_fault(object) {
            vec![fault]
        } else {
            let name = name_faults(object).into_iter();
            name.chain(validation_faults(object, false)).collect()
        };
        if !faults.is_empty() {
            rejected.push(Rejected {
                object: describe_object(object),
                origin: document.origin.clone(),
                faults,
            });
        } else if object["kind"] == "DIJob"
            && let Ok(job) = validation::validate_dijob(object)
        {
            warnings.extend(validation::job_warnings(&job.object));
        } else if object["kind"] == "AggregatorConfig"
            && let Ok(config) = validation::validate_aggregator_config(object)
        {
            warnings.extend(validation::config_warnings(&config.object));
        }
    }
    if rejected.is_empty() {
        Ok(warnings)
    } else {
        Err(Error::InvalidDocuments(rejected))
    }
}

/// The fault of an object whose kind is not DIJob or AggregatorConfig.
fn kind_fault(object: &Value) -> Option<String> {
    let text = |field: &str| object[field].as_str().filter(|text| !text.is_empty());
    let (Some(version), Some(kind)) = (text("apiVersion"), text("kind")) else {
        return Some("apiVersion and kind: Required value".to_owned());
    };
    let known = version
        .parse()
        .is_ok_and(|v| own_resource(&v, kind).is_some());
    (!known).then(|| format!("no matches for kind {kind:?} in version {version:?}"))
}

/// Whether the API group of an object belongs to the orchestrator, so that it can be checked
/// offline.
pub fn is_own_kind(object: &Value) -> bool {
    api_group(object) == Some(names::GROUP)
}

fn api_group(object: &Value) -> Option<&str> {
    object["apiVersion"].as_str()?.split('/').next()
}

fn describe_object(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or("an object without kind");
    match object["metadata"]["name"].as_str() {
        Some(name) => format!("{kind} {name:?}"),
        None => kind.to_owned(),
    }
}

fn name_faults(object: &Value) -> Option<String> {
    let is_set = |field: &str| {
        object["metadata"][field]
            .as_str()
            .is_some_and(|v| !v.is_empty())
    };
    if let Some(name) = object["metadata"]["name"].as_str()
        && let Some(fault) = name_fault(name)
    {
        return Some(format!("metadata.name: Invalid value: {name:?}: {fault}"));
    }
    let has_name = is_set("name") || is_set("generateName");
    (!has_name).then(|| "metadata.name: Required value".to_owned())
}

/// A cluster decides itself about fields of pods that this program does not know.
fn validation_faults(object: &Value, has_cluster: bool) -> Vec<String> {
    let ours = is_own_kind(object);
    let faults = match object["kind"].as_str() {
        Some("DIJob") if ours => faults_in(validation::validate_dijob(object), has_cluster),
        Some("AggregatorConfig") if ours => {
            faults_in(validation::validate_aggregator_config(object), has_cluster)
        }
        _ => Vec::new(),
    };
    faults.iter().map(ToString::to_string).collect()
}

fn faults_in<T>(result: Result<Valid<T>, Vec<Fault>>, has_cluster: bool) -> Vec<Fault> {
    let result = match result {
        Ok(valid) if !has_cluster => valid.without_unknown_fields().map(drop),
        other => other.map(drop),
    };
    result.err().unwrap_or_default()
}

/// Resolves the API resource and namespace of an object.
async fn resolve_resource(
    cluster: Option<&Cluster>,
    namespace: &Namespace,
    object: &Value,
    faults: &mut Vec<String>,
) -> Result<Option<(ApiResource, Option<String>)>> {
    let text = |field: &str| {
        object[field]
            .as_str()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let (Some(version), Some(kind)) = (text("apiVersion"), text("kind")) else {
        faults.push("apiVersion and kind: Required value".to_owned());
        return Ok(None);
    };
    let Ok(group_version) = version.parse::<GroupVersion>() else {
        faults.push(format!("apiVersion: Invalid value: {version:?}"));
        return Ok(None);
    };
    let found = match (own_resource(&group_version, &kind), cluster) {
        (Some(api), _) => Some((api, Scope::Namespaced)),
        (None, _) if group_version.group == names::GROUP => None,
        (None, Some(cluster)) => discover_resource(cluster, &group_version, &kind).await?,
        (None, None) => {
            faults.push(format!("kind: {kind} is unknown without a cluster"));
            return Ok(None);
        }
    };
    let Some((api, scope)) = found else {
        faults.push(format!(
            "no matches for kind {kind:?} in version {version:?}"
        ));
        return Ok(None);
    };
    if scope == Scope::Cluster {
        return Ok(Some((api, None)));
    }
    let own_namespace = &object["metadata"]["namespace"];
    if !own_namespace.is_null() && !own_namespace.is_string() {
        faults.push(format!(
            "metadata.namespace: Invalid value: {own_namespace}: quote it to make it a string"
        ));
    }
    let own_namespace = own_namespace.as_str();
    let own_namespace = own_namespace.filter(|name| !name.is_empty());
    if let Some(own) = own_namespace
        && let Some(fault) = name_fault(own)
    {
        faults.push(format!(
            "metadata.namespace: Invalid value: {own:?}: {fault}"
        ));
    }
    if let Some(own) = own_namespace
        && namespace.explicit
        && own != namespace.name
    {
        faults.push(format!(
            "the namespace from the provided object {own:?} does not match the namespace {:?}. You must pass '--namespace={own}' to perform this operation.",
            namespace.name
        ));
    }
    let namespace = own_namespace.unwrap_or(&namespace.name).to_owned();
    Ok(Some((api, Some(namespace))))
}

/// The API resource of DIJob or AggregatorConfig. Needs no discovery.
fn own_resource(version: &GroupVersion, kind: &str) -> Option<ApiResource> {
    let served = [names::VERSION, names::LEGACY_VERSION].contains(&version.version.as_str());
    let mut api = match kind {
        "DIJob" => ApiResource::erase::<DIJob>(&()),
        "AggregatorConfig" => ApiResource::erase::<AggregatorConfig>(&()),
        _ => return None,
    };
    api.version.clone_from(&version.version);
    api.api_version = version.api_version();
    (version.group == names::GROUP && served).then_some(api)
}

async fn discover_resource(
    cluster: &Cluster,
    version: &GroupVersion,
    kind: &str,
) -> Result<Option<(ApiResource, Scope)>> {
    let kind = GroupVersionKind::gvk(&version.group, &version.version, kind);
    match discovery::pinned_kind(&cluster.client, &kind).await {
        Ok((api, capabilities)) => Ok(Some((api, capabilities.scope))),
        Err(KubeError::Discovery(DiscoveryError::MissingKind(_))) => Ok(None),
        Err(KubeError::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(cluster.convert_error(error)),
    }
}

#[cfg(test)]
mod tests;
