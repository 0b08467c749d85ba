use semver::Version;

use super::finding::{Finding, FindingState};
use crate::{InstallVariant, Installed, Orchestrator, install::versions};

const CHECK: &str = "orchestrator";
/// Oldest tested version of Kubernetes.
const MIN_KUBERNETES: Version = Version::new(1, 20, 0);

/// Checks that the version of Kubernetes is supported.
pub(super) fn check_kubernetes_version(found: &str) -> Finding {
    let number = found.trim_start_matches('v');
    match Version::parse(number) {
        Ok(version) if version < MIN_KUBERNETES => {
            Finding::error("kubernetes", format!("Kubernetes {found} is not supported"))
                .with_remedy("use Kubernetes 1.20 or newer")
        }
        _ => Finding::ok("kubernetes", found),
    }
}

/// Checks that the orchestrator is installed, ready, and of a compatible version.
pub(super) fn check_deployment(found: &Orchestrator, plugin: &str) -> Vec<Finding> {
    match found {
        Orchestrator::NotInstalled => vec![
            Finding::error(CHECK, "DI Orchestrator is not installed")
                .with_remedy("run kubectl di install"),
        ],
        Orchestrator::Forbidden => vec![
            Finding::new(
                CHECK,
                FindingState::Unknown,
                "no permission to read Deployment di-webhook in namespace di-system",
            )
            .with_remedy("ask an administrator to check it, or for the permission to read it"),
        ],
        Orchestrator::Installed(installed) => {
            let mut findings = vec![readiness_finding(installed)];
            if let Some(version) = &installed.version
                && let Ok(plugin) = Version::parse(plugin)
                && let Some(skew) =
                    versions::version_skew(&plugin, version, installed.helm_release.as_ref())
            {
                let (message, remedy) = skew;
                findings.push(Finding::warning(CHECK, message).with_remedy(remedy));
            }
            findings
        }
    }
}

fn readiness_finding(installed: &Installed) -> Finding {
    let Installed { wanted, ready, .. } = installed;
    let version = installed.version.as_ref();
    let variant = match installed.variant {
        InstallVariant::Full => "",
        InstallVariant::WebhookOnly => ", webhooks only",
    };
    let version = version.map_or("of unknown version".to_owned(), ToString::to_string);
    let message = format!("{version}{variant}, {ready} of {wanted} replicas are ready");
    let pods = "find out why: kubectl -n di-system describe pods -l app.kubernetes.io/name=di-orchestrator";
    if *ready == 0 {
        Finding::error(CHECK, message).with_remedy(pods)
    } else if ready < wanted {
        Finding::warning(CHECK, message).with_remedy(pods)
    } else {
        Finding::ok(CHECK, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orchestrator_fixture(version: &str, ready: i32) -> Orchestrator {
        Orchestrator::Installed(Box::new(Installed {
            version: Version::parse(version).ok(),
            images: vec!["di".to_owned()],
            variant: InstallVariant::Full,
            gang_scheduler: None,
            helm_release: None,
            wanted: 2,
            ready,
        }))
    }

    #[test]
    fn deployment_severity_follows_ready_replicas() {
        for (ready, state) in [
            (2, FindingState::Ok),
            (1, FindingState::Warning),
            (0, FindingState::Error),
        ] {
            let found = check_deployment(&orchestrator_fixture("0.1.0", ready), "0.1.0");
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].state, state, "{found:?}");
        }
        let found = check_deployment(&orchestrator_fixture("0.2.0", 2), "0.1.0");
        assert_eq!(found[1].remedy.as_deref(), Some("upgrade the plugin"));
    }

    #[test]
    fn kubernetes_before_1_20_is_an_error() {
        assert_eq!(
            check_kubernetes_version("v1.19.7").state,
            FindingState::Error
        );
        assert_eq!(check_kubernetes_version("v1.20.2").state, FindingState::Ok);
        assert_eq!(
            check_kubernetes_version("v1.36.0-gke.1").state,
            FindingState::Ok
        );
    }
}
