use di_api::names;
use di_plan::GangSetting;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Container, rbac::v1::ClusterRole};
use kube::{Api, error::Error as KubeError};
use semver::Version;

use super::{
    helm::HelmRelease,
    install_objects::{GANG_VARIABLE, InstallVariant, MANAGER},
};
use crate::{Cluster, Result};

/// Label of the Deployment with the version of the orchestrator.
pub(super) const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// The ClusterRole with the permissions to use Kueue.
const KUEUE_ROLE: &str = "di-orchestrator-kueue";

/// State of the orchestrator in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Orchestrator {
    /// The orchestrator is installed.
    Installed(Box<Installed>),
    /// The Deployment does not exist.
    NotInstalled,
    /// The user has no permission to read the Deployment.
    Forbidden,
}

/// An installed orchestrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Version from the label or the image tag, if either is a version.
    pub version: Option<Version>,
    /// Container images without repetitions.
    pub images: Vec<String>,
    /// Full installation or webhooks only.
    pub variant: InstallVariant,
    /// The gang scheduler as it is set, possibly one that is unknown to this version.
    pub gang_scheduler: Option<String>,
    /// The release of Helm that manages it, if any.
    pub helm_release: Option<HelmRelease>,
    /// Desired replicas.
    pub wanted: i32,
    /// Ready replicas.
    pub ready: i32,
}

/// Reads the Deployment of the orchestrator.
pub async fn find_orchestrator(cluster: &Cluster) -> Result<Orchestrator> {
    let deployments: Api<Deployment> =
        Api::namespaced(cluster.client.clone(), names::SYSTEM_NAMESPACE);
    match deployments.get_opt(names::WEBHOOK_SERVICE).await {
        Ok(Some(deployment)) => Ok(Orchestrator::Installed(Box::new(deployment.into()))),
        Ok(None) => Ok(Orchestrator::NotInstalled),
        Err(KubeError::Api(status)) if status.is_forbidden() => Ok(Orchestrator::Forbidden),
        Err(error) => Err(cluster.convert_error(error)),
    }
}

/// Whether the permissions of the orchestrator to use Kueue are installed.
pub async fn has_kueue_permissions(cluster: &Cluster) -> Result<bool> {
    let roles: Api<ClusterRole> = Api::all(cluster.client.clone());
    let role = roles.get_opt(KUEUE_ROLE).await;
    let role = role.map_err(|error| cluster.convert_error(error))?;
    Ok(role.is_some())
}

impl Orchestrator {
    /// The release of Helm that manages the orchestrator, if any.
    pub fn helm_release(&self) -> Option<&HelmRelease> {
        match self {
            Self::Installed(installed) => installed.helm_release.as_ref(),
            Self::NotInstalled | Self::Forbidden => None,
        }
    }
}

impl From<Deployment> for Installed {
    fn from(deployment: Deployment) -> Self {
        let helm_release = HelmRelease::of_object(&deployment.metadata);
        let labels = deployment.metadata.labels.unwrap_or_default();
        let ready = deployment.status.and_then(|status| status.ready_replicas);
        let containers = deployment.spec.template.spec.unwrap_or_default().containers;
        let has_server = containers.iter().any(|container| {
            let args = container.args.as_deref().unwrap_or_default();
            args.first().is_some_and(|arg| arg == "server")
        });
        let gang_scheduler = find_gang_scheduler(&containers);
        let mut images: Vec<_> = containers.into_iter().filter_map(|c| c.image).collect();
        images.dedup();
        let label = labels.get(VERSION_LABEL).map(String::as_str);
        let tag = images.first().and_then(|image| image_tag(image));
        Self {
            version: label
                .and_then(parse_version)
                .or(tag.and_then(parse_version)),
            images,
            variant: if has_server {
                InstallVariant::Full
            } else {
                InstallVariant::WebhookOnly
            },
            gang_scheduler,
            helm_release,
            wanted: deployment.spec.replicas.unwrap_or(1),
            ready: ready.unwrap_or(0),
        }
    }
}

/// The gang scheduler in the environment of the manager.
fn find_gang_scheduler(containers: &[Container]) -> Option<String> {
    let manager = containers.iter().find(|one| one.name == MANAGER)?;
    let mut variables = manager.env.iter().flatten();
    let value = variables
        .find(|one| one.name == GANG_VARIABLE)?
        .value
        .as_ref()?;
    let is_none = value.parse::<GangSetting>() == Ok(GangSetting(None));
    (!is_none).then(|| value.clone())
}

fn parse_version(text: &str) -> Option<Version> {
    Version::parse(text.strip_prefix('v').unwrap_or(text)).ok()
}

/// The tag of an image reference. The port of the registry is no tag.
fn image_tag(image: &str) -> Option<&str> {
    let name = image.split('@').next()?;
    let (_, tag) = name.rsplit_once(':')?;
    (!tag.contains('/')).then_some(tag)
}

/// The image reference without tag and digest.
pub(crate) fn image_repository(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or(image);
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    }
}

impl Installed {
    /// The image for an upgrade to the version of this library.
    ///
    /// # Errors
    /// The current image, if it comes from another repository. The caller must then name an image.
    pub fn upgrade_image<'a>(&'a self, ours: &'a str) -> Result<&'a str, &'a str> {
        let current = self.images.first().map(String::as_str);
        match current {
            Some(current) if image_repository(current) != image_repository(ours) => Err(current),
            _ => Ok(ours),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn installed_fixture(label: Option<&str>, image: &str, args: &[&str]) -> Installed {
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
    fn version_comes_from_label_or_image_tag() {
        for (label, image, found) in [
            (Some("1.2.3"), "r:5000/di:v2.0.0", Some("1.2.3")),
            (None, "r:5000/di:v2.0.0", Some("2.0.0")),
            (None, "r:5000/di:2.0.0@sha256:00", Some("2.0.0")),
            (None, "r:5000/di", None),
            (None, "di-orchestrator:latest", None),
        ] {
            let version = installed_fixture(label, image, &["manager"]).version;
            assert_eq!(
                version.map(|v| v.to_string()).as_deref(),
                found,
                "{label:?} {image}"
            );
        }
    }

    #[test]
    fn server_container_means_full_installation() {
        assert_eq!(
            installed_fixture(None, "di", &["server"]).variant,
            InstallVariant::Full
        );
        let only = installed_fixture(None, "di", &["manager", "--webhook-only"]);
        assert_eq!(only.variant, InstallVariant::WebhookOnly);
        assert_eq!((only.wanted, only.ready), (2, 1));
    }

    #[test]
    fn gang_scheduler_comes_from_environment_of_manager() {
        for (container, value, found) in [
            ("manager", "coscheduling:mine", Some("coscheduling:mine")),
            ("manager", "none", None),
            ("manager", "", None),
            ("replicas", "volcano", None),
        ] {
            let containers = json!([{
                "name": container, "env": [
                    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": GANG_VARIABLE, "value": value},
                ],
            }]);
            let containers: Vec<Container> = serde_json::from_value(containers).unwrap();
            let scheduler = find_gang_scheduler(&containers);
            assert_eq!(scheduler.as_deref(), found, "{container} {value}");
        }
    }

    #[test]
    fn upgrade_image_keeps_repository() {
        let with_image = |image: &str| installed_fixture(None, image, &["server"]);
        assert_eq!(
            with_image("r:1/di:v1.0.0").upgrade_image("r:1/di:v2.0.0"),
            Ok("r:1/di:v2.0.0")
        );
        assert_eq!(
            with_image("mirror/di:v1").upgrade_image("r:1/di:v2"),
            Err("mirror/di:v1")
        );
        assert_eq!(
            with_image("r:1/di@sha256:00").upgrade_image("r:1/di"),
            Ok("r:1/di")
        );
    }
}
