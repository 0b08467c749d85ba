use std::collections::BTreeSet;

use di_api::{AggregatorConfig, DIJob, names, validation};
use kube::{
    core::{ApiResource, GroupVersion, GroupVersionKind},
    discovery::{self, Scope},
    error::{DiscoveryError, Error as KubeError},
};
use serde_json::Value;

use crate::{Cluster, Document, Error, Namespace, Rejected, Result, names::name_fault};

/// How closely documents are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckLevel {
    /// All that can be told without the server, before they are created.
    Whole,
    /// What names them, before they are deleted.
    Identity,
}

/// An object whose place in the cluster is known.
#[derive(Clone, Debug)]
pub struct PreparedObject {
    /// Manifest that it stands in.
    pub origin: String,
    /// As it is written.
    pub object: Value,
    /// Where the server keeps its kind.
    pub api: ApiResource,
    /// Its namespace; none for kinds that belong to the whole cluster.
    pub namespace: Option<String>,
}

impl PreparedObject {
    /// Its name; empty where the server is to find one.
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }
}

/// Finds the place of every document, and all that is wrong with any.
///
/// Kinds other than ours need a cluster to be known.
///
/// # Errors
/// [`Error::Rejected`] tells of every document at fault.
pub async fn prepare(
    cluster: Option<&Cluster>,
    namespace: &Namespace,
    documents: Vec<Document>,
    check: CheckLevel,
) -> Result<Vec<PreparedObject>> {
    let (mut ready, mut rejected, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for document in documents {
        let mut faults = Vec::new();
        let place = place(cluster, namespace, &document.object, &mut faults).await?;
        faults.extend(named(&document.object, check));
        if check == CheckLevel::Full {
            faults.extend(validated(&document.object));
        }
        if let Some((api, namespace)) = place {
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
                faults.push("metadata.name: the same object stands twice".to_owned());
            }
            ready.push(one);
        }
        if !faults.is_empty() {
            rejected.push(Rejected {
                object: describe(&document.object),
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

/// All that can be told without a server of documents that are never sent, those of other kinds than ours left out; what is legal but doubtful
/// comes back.
///
/// # Errors
/// [`Error::InvalidDocuments`] tells of every document at fault.
pub fn check(documents: &[Document]) -> Result<Vec<String>> {
    let (mut warnings, mut rejected) = (Vec::new(), Vec::new());
    for document in documents {
        let object = &document.object;
        let faults = if let Some(fault) = unknown(object) {
            vec![fault]
        } else {
            let name = named(object, CheckLevel::Full).into_iter();
            name.chain(validated(object)).collect()
        };
        if !faults.is_empty() {
            rejected.push(Rejected {
                object: describe(object),
                origin: document.origin.clone(),
                faults,
            });
        } else if object["kind"] == "DIJob"
            && let Ok(job) = validation::dijob(object)
        {
            warnings.extend(validation::warnings(&job));
        } else if object["kind"] == "AggregatorConfig"
            && let Ok(config) = validation::aggregator_config(object)
        {
            warnings.extend(validation::config_warnings(&config));
        }
    }
    if rejected.is_empty() {
        Ok(warnings)
    } else {
        Err(Error::InvalidDocuments(rejected))
    }
}

/// What is wrong with the kind of an object that should be ours.
fn unknown(object: &Value) -> Option<String> {
    let text = |field: &str| object[field].as_str().filter(|text| !text.is_empty());
    let (Some(version), Some(kind)) = (text("apiVersion"), text("kind")) else {
        return Some("apiVersion and kind: Required value".to_owned());
    };
    let known = version.parse().is_ok_and(|v| ours(&v, kind).is_some());
    (!known).then(|| format!("no matches for kind {kind:?} in version {version:?}"))
}

/// Whether an object is of a kind that can be checked without a server.
pub fn is_own_kind(object: &Value) -> bool {
    group(object) == Some(names::GROUP)
}

fn group(object: &Value) -> Option<&str> {
    object["apiVersion"].as_str()?.split('/').next()
}

fn describe(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or("an object without kind");
    match object["metadata"]["name"].as_str() {
        Some(name) => format!("{kind} {name:?}"),
        None => kind.to_owned(),
    }
}

fn named(object: &Value, check: CheckLevel) -> Option<String> {
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
    let fine = is_set("name") || (check == CheckLevel::Full && is_set("generateName"));
    (!fine).then(|| "metadata.name: Required value".to_owned())
}

fn validated(object: &Value) -> Vec<String> {
    let ours = is_own_kind(object);
    let faults = match object["kind"].as_str() {
        Some("DIJob") if ours => validation::dijob(object).err(),
        Some("AggregatorConfig") if ours => validation::aggregator_config(object).err(),
        _ => None,
    };
    faults.iter().flatten().map(ToString::to_string).collect()
}

/// Where the server keeps this object, if anywhere.
async fn place(
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
    let found = match (ours(&group_version, &kind), cluster) {
        (Some(api), _) => Some((api, Scope::Namespaced)),
        (None, _) if group_version.group == names::GROUP => None,
        (None, Some(cluster)) => discover(cluster, &group_version, &kind).await?,
        (None, None) => {
            faults.push(format!(
                "kind: {kind} cannot be looked up without a cluster"
            ));
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
    let own = object["metadata"]["namespace"].as_str();
    let own = own.filter(|own| !own.is_empty());
    if let Some(own) = own
        && let Some(fault) = name_fault(own)
    {
        faults.push(format!(
            "metadata.namespace: Invalid value: {own:?}: {fault}"
        ));
    }
    if let Some(own) = own
        && namespace.explicit
        && own != namespace.name
    {
        faults.push(format!(
            "the namespace from the provided object {own:?} does not match the namespace {:?}. You must pass '--namespace={own}' to perform this operation.",
            namespace.name
        ));
    }
    let namespace = own.unwrap_or(&namespace.name).to_owned();
    Ok(Some((api, Some(namespace))))
}

/// Our own kinds, which need no question to the server.
fn ours(version: &GroupVersion, kind: &str) -> Option<ApiResource> {
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

async fn discover(
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
