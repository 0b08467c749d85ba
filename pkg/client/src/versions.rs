use di_api::names;
use kube::{discovery, error::Error as KubeError};
use semver::Version;

use crate::{Cluster, Orchestrator, Result, installed};

/// What runs in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Of Kubernetes.
    pub kubernetes: String,
    /// Versions of our API that are served, preferred first.
    pub api: Vec<String>,
    /// The orchestrator.
    pub orchestrator: Orchestrator,
}

/// What runs in the cluster.
pub async fn versions(cluster: &Cluster) -> Result<Versions> {
    let (kubernetes, api, orchestrator) =
        futures::try_join!(kubernetes(cluster), served(cluster), installed(cluster))?;
    Ok(Versions {
        kubernetes,
        api,
        orchestrator,
    })
}

/// The version of Kubernetes.
pub(crate) async fn kubernetes(cluster: &Cluster) -> Result<String> {
    let info = cluster.client.apiserver_version().await;
    Ok(info.map_err(|error| cluster.error(error))?.git_version)
}

/// Versions of our API that are served, preferred first.
pub(crate) async fn served(cluster: &Cluster) -> Result<Vec<String>> {
    match discovery::group(&cluster.client, names::GROUP).await {
        Ok(group) => Ok(group.versions().map(str::to_owned).collect()),
        Err(KubeError::Discovery(_)) => Ok(Vec::new()),
        Err(error) => Err(cluster.error(error)),
    }
}

/// What does not fit together, and what to do: nothing, where all does.
pub fn skew(plugin: &str, found: &Versions) -> Vec<String> {
    let mut said = Vec::new();
    if let Orchestrator::Installed(installed) = &found.orchestrator
        && let (Ok(plugin), Some(orchestrator)) = (Version::parse(plugin), &installed.version)
    {
        let between = between(&plugin, orchestrator);
        said.extend(between.map(|(message, remedy)| format!("{message}; {remedy}")));
    }
    let missing = [names::VERSION, names::LEGACY_VERSION].map(str::to_owned);
    let missing: Vec<_> = missing
        .into_iter()
        .filter(|version| !found.api.contains(version))
        .collect();
    if found.orchestrator != Orchestrator::NotInstalled && !missing.is_empty() {
        said.push(format!(
            "the cluster does not serve {} {}; bring its definitions up to date: kubectl di upgrade",
            names::GROUP,
            missing.join(" and ")
        ));
    }
    said
}

/// What is wrong between two versions, and what helps. As within Kubernetes, a minor version less or more is no matter; before 1.0, every
/// minor version may change everything.
pub(crate) fn between(plugin: &Version, orchestrator: &Version) -> Option<(String, &'static str)> {
    let near = match (plugin.major, orchestrator.major) {
        (0, 0) => plugin.minor == orchestrator.minor,
        (ours, theirs) => ours == theirs && plugin.minor.abs_diff(orchestrator.minor) <= 1,
    };
    let remedy = if plugin > orchestrator {
        "upgrade the orchestrator: kubectl di upgrade"
    } else {
        "upgrade the plugin"
    };
    let message = format!(
        "version difference between plugin ({plugin}) and orchestrator ({orchestrator}) exceeds what is supported"
    );
    (!near).then_some((message, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_fit_as_within_kubernetes() {
        for (plugin, orchestrator, told) in [
            ("0.1.0", "0.1.7", None),
            ("0.2.0", "0.1.0", Some("upgrade the orchestrator")),
            ("0.1.0", "0.2.0", Some("upgrade the plugin")),
            ("1.2.0", "1.3.0", None),
            ("1.2.0", "1.4.0", Some("upgrade the plugin")),
            ("2.0.0", "1.9.0", Some("upgrade the orchestrator")),
        ] {
            let version = |text: &str| Version::parse(text).unwrap();
            let said = between(&version(plugin), &version(orchestrator));
            match (said, told) {
                (None, None) => {}
                (Some((_, remedy)), Some(told)) => assert!(remedy.starts_with(told), "{remedy}"),
                (said, told) => panic!("{plugin} {orchestrator}: {said:?}, not {told:?}"),
            }
        }
    }
}
