use di_api::names;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, error::Error as KubeError};
use semver::Version;

use super::Flavour;
use crate::{Cluster, Result};

/// Label of the deployment that tells its version.
pub(super) const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// The orchestrator of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Orchestrator {
    /// It is there.
    Installed(Box<Installed>),
    /// There is none.
    NotInstalled,
    /// The user may not look.
    Hidden,
}

/// An orchestrator that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Its version, where that can be told.
    pub version: Option<Version>,
    /// Images that it runs, each once.
    pub images: Vec<String>,
    /// Whether it is all of it.
    pub flavour: Flavour,
    /// Replicas that are wanted.
    pub wanted: i32,
    /// Replicas that are ready.
    pub ready: i32,
}

/// The orchestrator of the cluster.
pub async fn installed(cluster: &Cluster) -> Result<Orchestrator> {
    let deployments: Api<Deployment> =
        Api::namespaced(cluster.client.clone(), names::SYSTEM_NAMESPACE);
    match deployments.get_opt(names::WEBHOOK_SERVICE).await {
        Ok(Some(deployment)) => Ok(Orchestrator::Installed(Box::new(deployment.into()))),
        Ok(None) => Ok(Orchestrator::NotInstalled),
        Err(KubeError::Api(status)) if status.is_forbidden() => Ok(Orchestrator::Hidden),
        Err(error) => Err(cluster.error(error)),
    }
}

impl From<Deployment> for Installed {
    fn from(deployment: Deployment) -> Self {
        let labels = deployment.metadata.labels.unwrap_or_default();
        let ready = deployment.status.and_then(|status| status.ready_replicas);
        let containers = deployment.spec.template.spec.unwrap_or_default().containers;
        let serves = containers.iter().any(|container| {
            let args = container.args.as_deref().unwrap_or_default();
            args.first().is_some_and(|arg| arg == "server")
        });
        let mut images: Vec<_> = containers.into_iter().filter_map(|c| c.image).collect();
        images.dedup();
        let label = labels.get(VERSION_LABEL).map(String::as_str);
        let tag = images.first().and_then(|image| tag(image));
        Self {
            version: label.and_then(version).or(tag.and_then(version)),
            images,
            flavour: if serves {
                Flavour::Whole
            } else {
                Flavour::WebhookOnly
            },
            wanted: deployment.spec.replicas.unwrap_or(1),
            ready: ready.unwrap_or(0),
        }
    }
}

fn version(text: &str) -> Option<Version> {
    Version::parse(text.strip_prefix('v').unwrap_or(text)).ok()
}

/// The tag of an image; the port of its registry is none.
fn tag(image: &str) -> Option<&str> {
    let name = image.split('@').next()?;
    let (_, tag) = name.rsplit_once(':')?;
    (!tag.contains('/')).then_some(tag)
}

/// An image without its tag and digest.
pub(crate) fn repository(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or(image);
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    }
}

impl Installed {
    /// The image that an upgrade to this library's version runs: unless it is told, it must not leave the registry that the cluster uses.
    ///
    /// # Errors
    /// The image that runs, when it comes from elsewhere.
    pub fn next_image<'a>(&'a self, ours: &'a str) -> Result<&'a str, &'a str> {
        let runs = self.images.first().map(String::as_str);
        match runs {
            Some(runs) if repository(runs) != repository(ours) => Err(runs),
            _ => Ok(ours),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(label: Option<&str>, image: &str, args: &[&str]) -> Installed {
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"labels": label.map(|label| json!({VERSION_LABEL: label}))},
            "spec": {
                "replicas": 2,
                "selector": {},
                "template": {"spec": {"containers": [{"name": "c", "image": image, "args": args}]}},
            },
            "status": {"readyReplicas": 1},
        }))
        .unwrap();
        deployment.into()
    }

    #[test]
    fn the_version_is_that_of_the_label_or_else_the_tag() {
        for (label, image, found) in [
            (Some("1.2.3"), "r:5000/di:v2.0.0", Some("1.2.3")),
            (None, "r:5000/di:v2.0.0", Some("2.0.0")),
            (None, "r:5000/di:2.0.0@sha256:00", Some("2.0.0")),
            (None, "r:5000/di", None),
            (None, "di-orchestrator:dev", None),
        ] {
            let version = deployment(label, image, &["manager"]).version;
            assert_eq!(
                version.map(|v| v.to_string()).as_deref(),
                found,
                "{label:?} {image}"
            );
        }
    }

    #[test]
    fn what_serves_the_endpoint_is_the_whole_of_it() {
        assert_eq!(deployment(None, "di", &["server"]).flavour, Flavour::Whole);
        let only = deployment(None, "di", &["manager", "--webhooks-only"]);
        assert_eq!(only.flavour, Flavour::WebhookOnly);
        assert_eq!((only.wanted, only.ready), (2, 1));
    }

    #[test]
    fn an_upgrade_stays_with_the_registry() {
        let of = |image: &str| deployment(None, image, &["server"]);
        assert_eq!(
            of("r:1/di:v1.0.0").next_image("r:1/di:v2.0.0"),
            Ok("r:1/di:v2.0.0")
        );
        assert_eq!(
            of("mirror/di:v1").next_image("r:1/di:v2"),
            Err("mirror/di:v1")
        );
        assert_eq!(of("r:1/di@sha256:00").next_image("r:1/di"), Ok("r:1/di"));
    }
}
