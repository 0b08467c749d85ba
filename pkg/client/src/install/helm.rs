use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The published chart of this version.
const CHART: &str = concat!(
    "oci://ghcr.io/opendilab/charts/di-orchestrator --version ",
    env!("CARGO_PKG_VERSION")
);

/// The release of Helm that manages an orchestrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelmRelease {
    /// Name of the release.
    pub name: String,
    /// Namespace of the release.
    pub namespace: String,
}

impl HelmRelease {
    /// The release of an object. The objects of `helm template` have none.
    pub(super) fn of_object(metadata: &ObjectMeta) -> Option<Self> {
        let labels = metadata.labels.as_ref()?;
        let is_managed = labels.get("app.kubernetes.io/managed-by")? == "Helm";
        let annotations = metadata.annotations.as_ref()?;
        let name = annotations.get("meta.helm.sh/release-name")?;
        let namespace = annotations.get("meta.helm.sh/release-namespace")?;
        is_managed.then(|| Self {
            name: name.clone(),
            namespace: namespace.clone(),
        })
    }

    /// The command that upgrades the release to the version of this library, and also lets it use
    /// Kueue or a gang scheduler.
    pub fn upgrade_command(&self, kueue: bool, gang_scheduler: Option<&str>) -> String {
        let Self { name, namespace } = self;
        let mut command = format!("helm upgrade {name} {CHART} --namespace {namespace}");
        // Helm keeps the values of a release only if no value is set.
        if kueue || gang_scheduler.is_some() {
            command.push_str(" --reset-then-reuse-values");
        }
        if kueue {
            command.push_str(" --set kueue.enabled=true");
        }
        if let Some(scheduler) = gang_scheduler {
            command.push_str(" --set gangScheduler=");
            command.push_str(scheduler);
        }
        command
    }

    /// The command that uninstalls the release.
    pub fn uninstall_command(&self) -> String {
        let Self { name, namespace } = self;
        format!("helm uninstall {name} --namespace {namespace}")
    }
}

/// The command that upgrades an orchestrator.
pub(crate) fn upgrade_command(release: Option<&HelmRelease>) -> String {
    release.map_or_else(
        || "kubectl di upgrade".to_owned(),
        |release| release.upgrade_command(false, None),
    )
}

/// The command that lets an orchestrator use Kueue.
pub(crate) fn kueue_command(release: Option<&HelmRelease>) -> String {
    release.map_or_else(
        || "kubectl di install --kueue".to_owned(),
        |release| release.upgrade_command(true, None),
    )
}

/// The command that lets an orchestrator use a gang scheduler.
pub(crate) fn gang_command(release: Option<&HelmRelease>, scheduler: &str) -> String {
    release.map_or_else(
        || format!("kubectl di install --gang-scheduler={scheduler}"),
        |release| release.upgrade_command(false, Some(scheduler)),
    )
}

/// The remedy for missing or outdated objects of an orchestrator.
pub(crate) fn repair_remedy(release: Option<&HelmRelease>) -> String {
    release.map_or_else(
        || "run kubectl di install, or kubectl di upgrade if it is installed already".to_owned(),
        |release| format!("run {}", release.upgrade_command(false, None)),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::VERSION;

    #[test]
    fn helm_release_comes_from_label_and_annotations() {
        let annotations = json!({
            "meta.helm.sh/release-name": "rl",
            "meta.helm.sh/release-namespace": "di-system",
        });
        let release = HelmRelease {
            name: "rl".to_owned(),
            namespace: "di-system".to_owned(),
        };
        for (manager, annotations, found) in [
            ("Helm", &annotations, Some(release)),
            ("Helm", &json!({}), None),
            ("Kustomize", &annotations, None),
        ] {
            let metadata = serde_json::from_value(json!({
                "labels": {"app.kubernetes.io/managed-by": manager}, "annotations": annotations,
            }))
            .unwrap();
            assert_eq!(HelmRelease::of_object(&metadata), found, "{manager}");
        }
        assert_eq!(HelmRelease::of_object(&ObjectMeta::default()), None);
    }

    #[test]
    fn commands_are_those_of_the_manager() {
        let release = HelmRelease {
            name: "rl".to_owned(),
            namespace: "team".to_owned(),
        };
        let helm = Some(&release);
        let upgrade = format!(
            "helm upgrade rl oci://ghcr.io/opendilab/charts/di-orchestrator --version {VERSION} --namespace team"
        );
        assert_eq!(upgrade_command(None), "kubectl di upgrade");
        assert_eq!(upgrade_command(helm), upgrade);
        assert_eq!(repair_remedy(helm), format!("run {upgrade}"));
        assert_eq!(kueue_command(None), "kubectl di install --kueue");
        let set = format!("{upgrade} --reset-then-reuse-values --set");
        assert_eq!(kueue_command(helm), format!("{set} kueue.enabled=true"));
        assert_eq!(
            gang_command(None, "kai"),
            "kubectl di install --gang-scheduler=kai"
        );
        assert_eq!(
            gang_command(helm, "kai"),
            format!("{set} gangScheduler=kai")
        );
        assert_eq!(
            release.upgrade_command(true, Some("none")),
            format!("{set} kueue.enabled=true --set gangScheduler=none")
        );
        assert_eq!(
            release.uninstall_command(),
            "helm uninstall rl --namespace team"
        );
    }
}
