use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Explains `CHART` in the commands: a checkout and a release have this version's chart.
const CHART_HINT: &str = concat!(
    ", where CHART is charts/di-orchestrator of a checkout, or ",
    "oci://ghcr.io/opendilab/charts/di-orchestrator --version ",
    env!("CARGO_PKG_VERSION"),
    " of a release"
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
    /// Kueue, a gang scheduler or another image; then an explanation of its chart.
    pub fn upgrade_command(
        &self,
        kueue: bool,
        gang_scheduler: Option<&str>,
        image: Option<&str>,
    ) -> String {
        let Self { name, namespace } = self;
        let mut command = format!("helm upgrade {name} CHART --namespace {namespace}");
        // Helm keeps the values of a release only if no value is set.
        if kueue || gang_scheduler.is_some() || image.is_some() {
            command.push_str(" --reset-then-reuse-values");
        }
        if kueue {
            command.push_str(" --set kueue.enabled=true");
        }
        if let Some(scheduler) = gang_scheduler {
            command.push_str(" --set gangScheduler=");
            command.push_str(scheduler);
        }
        if let Some(image) = image {
            command.push_str(&image_values(image));
        }
        command.push_str(CHART_HINT);
        command
    }

    /// The command that uninstalls the release.
    pub fn uninstall_command(&self) -> String {
        let Self { name, namespace } = self;
        format!("helm uninstall {name} --namespace {namespace}")
    }
}

/// The flags that set an image, after a space. The chart joins the values with a colon, so the
/// last colon of a digest separates them, too.
fn image_values(image: &str) -> String {
    let (repository, tag) = image
        .rsplit_once(':')
        .filter(|(_, tag)| !tag.contains('/'))
        .unwrap_or((image, "latest"));
    format!(" --set-string image.repository={repository},image.tag={tag}")
}

/// The command that upgrades an orchestrator.
pub(crate) fn upgrade_command(release: Option<&HelmRelease>) -> String {
    release.map_or_else(
        || "kubectl di upgrade".to_owned(),
        |release| release.upgrade_command(false, None, None),
    )
}

/// The command that lets an orchestrator use Kueue.
pub(crate) fn kueue_command(release: Option<&HelmRelease>) -> String {
    release.map_or_else(
        || "kubectl di install --kueue".to_owned(),
        |release| release.upgrade_command(true, None, None),
    )
}

/// The command that lets an orchestrator use a gang scheduler.
pub(crate) fn gang_command(release: Option<&HelmRelease>, scheduler: &str) -> String {
    release.map_or_else(
        || format!("kubectl di install --gang-scheduler={scheduler}"),
        |release| release.upgrade_command(false, Some(scheduler), None),
    )
}

/// The remedy for missing or outdated objects of an orchestrator.
pub(crate) fn repair_remedy(release: Option<&HelmRelease>) -> String {
    release.map_or_else(
        || "run kubectl di install, or kubectl di upgrade if it is installed already".to_owned(),
        |release| format!("run {}", release.upgrade_command(false, None, None)),
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
        let hint = format!(
            ", where CHART is charts/di-orchestrator of a checkout, or oci://ghcr.io/opendilab/charts/di-orchestrator --version {VERSION} of a release"
        );
        let upgrade = format!("helm upgrade rl CHART --namespace team{hint}");
        assert_eq!(upgrade_command(None), "kubectl di upgrade");
        assert_eq!(upgrade_command(helm), upgrade);
        assert_eq!(repair_remedy(helm), format!("run {upgrade}"));
        assert_eq!(kueue_command(None), "kubectl di install --kueue");
        let set = "helm upgrade rl CHART --namespace team --reset-then-reuse-values --set";
        assert_eq!(
            kueue_command(helm),
            format!("{set} kueue.enabled=true{hint}")
        );
        assert_eq!(
            gang_command(None, "kai"),
            "kubectl di install --gang-scheduler=kai"
        );
        assert_eq!(
            gang_command(helm, "kai"),
            format!("{set} gangScheduler=kai{hint}")
        );
        assert_eq!(
            release.upgrade_command(true, Some("none"), Some("r:5000/di:v2")),
            format!(
                "{set} kueue.enabled=true --set gangScheduler=none --set-string image.repository=r:5000/di,image.tag=v2{hint}"
            )
        );
        assert_eq!(
            release.uninstall_command(),
            "helm uninstall rl --namespace team"
        );
    }

    #[test]
    fn image_values_joined_are_the_image() {
        for (image, repository, tag) in [
            ("di", "di", "latest"),
            ("r:5000/di", "r:5000/di", "latest"),
            ("r:5000/di:v2", "r:5000/di", "v2"),
            ("r/di@sha256:00", "r/di@sha256", "00"),
        ] {
            assert_eq!(
                image_values(image),
                format!(" --set-string image.repository={repository},image.tag={tag}")
            );
        }
    }
}
