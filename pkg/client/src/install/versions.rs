use di_api::names;
use kube::{
    discovery::{self, ApiGroup},
    error::Error as KubeError,
};
use semver::Version;

use super::helm::{HelmRelease, upgrade_command};
use crate::{Cluster, Orchestrator, Result, find_orchestrator};

/// Versions of the parts that run in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Version of Kubernetes.
    pub kubernetes: String,
    /// Served versions of the API group, preferred version first.
    pub api: Vec<String>,
    /// The installed orchestrator.
    pub orchestrator: Orchestrator,
}

/// Reads the versions of all parts that run in the cluster.
pub async fn get_versions(cluster: &Cluster) -> Result<Versions> {
    let (kubernetes, api, orchestrator) = futures::try_join!(
        kubernetes_version(cluster),
        served_api_versions(cluster),
        find_orchestrator(cluster)
    )?;
    Ok(Versions {
        kubernetes,
        api,
        orchestrator,
    })
}

/// Reads the version of Kubernetes.
pub(crate) async fn kubernetes_version(cluster: &Cluster) -> Result<String> {
    let info = cluster.client.apiserver_version().await;
    Ok(info
        .map_err(|error| cluster.convert_error(error))?
        .git_version)
}

/// Reads the served versions of the API group of jobs, preferred version first.
pub(crate) async fn served_api_versions(cluster: &Cluster) -> Result<Vec<String>> {
    served_versions(cluster, names::GROUP).await
}

/// Reads the served versions of an API group, preferred version first. Empty if it is not served.
pub(crate) async fn served_versions(cluster: &Cluster, group: &str) -> Result<Vec<String>> {
    let found = find_group(cluster, group).await?;
    Ok(found.map_or_else(Vec::new, |group| {
        group.versions().map(str::to_owned).collect()
    }))
}

/// Whether the cluster serves a kind in this version of an API group.
pub(crate) async fn is_kind_served(
    cluster: &Cluster,
    group: &str,
    version: &str,
    kind: &str,
) -> Result<bool> {
    let found = find_group(cluster, group).await?;
    Ok(found.is_some_and(|group| {
        let mut resources = group.versioned_resources(version).into_iter();
        resources.any(|(resource, _)| resource.kind == kind)
    }))
}

/// Reads the kinds of an API group; none if it is not served.
async fn find_group(cluster: &Cluster, group: &str) -> Result<Option<ApiGroup>> {
    match discovery::group(&cluster.client, group).await {
        Ok(group) => Ok(Some(group)),
        Err(KubeError::Discovery(_)) => Ok(None),
        Err(error) => Err(cluster.convert_error(error)),
    }
}

/// Describes unsupported version differences and their remedies. Empty without differences.
pub fn skew_messages(plugin: &str, found: &Versions) -> Vec<String> {
    let release = found.orchestrator.helm_release();
    let mut messages = Vec::new();
    if let Orchestrator::Installed(installed) = &found.orchestrator
        && let (Ok(plugin), Some(orchestrator)) = (Version::parse(plugin), &installed.version)
    {
        let skew = version_skew(&plugin, orchestrator, release);
        messages.extend(skew.map(|(message, remedy)| format!("{message}; {remedy}")));
    }
    let missing = [names::VERSION, names::LEGACY_VERSION].map(str::to_owned);
    let missing: Vec<_> = missing
        .into_iter()
        .filter(|version| !found.api.contains(version))
        .collect();
    if found.orchestrator != Orchestrator::NotInstalled && !missing.is_empty() {
        messages.push(format!(
            "the cluster does not serve {} {}; update the CustomResourceDefinitions: {}",
            names::GROUP,
            missing.join(" and "),
            upgrade_command(release)
        ));
    }
    messages
}

/// The message and remedy for an unsupported version difference.
///
/// As in Kubernetes, one minor version of difference is supported. Before 1.0 none is.
pub(crate) fn version_skew(
    plugin: &Version,
    orchestrator: &Version,
    release: Option<&HelmRelease>,
) -> Option<(String, String)> {
    let supported = match (plugin.major, orchestrator.major) {
        (0, 0) => plugin.minor == orchestrator.minor,
        (ours, theirs) => ours == theirs && plugin.minor.abs_diff(orchestrator.minor) <= 1,
    };
    let remedy = if plugin > orchestrator {
        format!("upgrade the orchestrator: {}", upgrade_command(release))
    } else {
        "upgrade the plugin".to_owned()
    };
    let message = format!(
        "version difference between plugin ({plugin}) and orchestrator ({orchestrator}) exceeds what is supported"
    );
    (!supported).then_some((message, remedy))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use serde_json::json;

    use super::*;

    #[test]
    fn version_skew_allows_one_minor_version() {
        for (plugin, orchestrator, expected) in [
            ("0.1.0", "0.1.7", None),
            ("0.2.0", "0.1.0", Some("upgrade the orchestrator")),
            ("0.1.0", "0.2.0", Some("upgrade the plugin")),
            ("1.2.0", "1.3.0", None),
            ("1.2.0", "1.4.0", Some("upgrade the plugin")),
            ("2.0.0", "1.9.0", Some("upgrade the orchestrator")),
        ] {
            let version = |text: &str| Version::parse(text).unwrap();
            let skew = version_skew(&version(plugin), &version(orchestrator), None);
            match (skew, expected) {
                (None, None) => {}
                (Some((_, remedy)), Some(expected)) => {
                    assert!(remedy.starts_with(expected), "{remedy}");
                }
                (skew, expected) => panic!("{plugin} {orchestrator}: {skew:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn skew_messages_name_the_command_of_helm() {
        let deployment = json!({
            "metadata": {
                "labels": {
                    "app.kubernetes.io/managed-by": "Helm",
                    "app.kubernetes.io/version": "0.1.0",
                },
                "annotations": {
                    "meta.helm.sh/release-name": "rl",
                    "meta.helm.sh/release-namespace": "di-system",
                },
            },
            "spec": {"selector": {}, "template": {}},
        });
        let deployment: Deployment = serde_json::from_value(deployment).unwrap();
        let found = Versions {
            kubernetes: "v1.36.0".to_owned(),
            api: vec![names::VERSION.to_owned()],
            orchestrator: Orchestrator::Installed(Box::new(deployment.into())),
        };
        let messages = skew_messages("0.2.0", &found);
        assert_eq!(messages.len(), 2, "{messages:?}");
        for message in messages {
            assert!(message.contains(": helm upgrade rl "), "{message}");
            assert!(message.contains(" --namespace di-system"), "{message}");
        }
    }
}
