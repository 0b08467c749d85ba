use semver::Version;

use super::Finding;
use crate::{Flavour, Installed, Orchestrator, versions};

const CHECK: &str = "orchestrator";
/// The oldest Kubernetes that the project is tested on.
const OLDEST: Version = Version::new(1, 20, 0);

/// Whether this Kubernetes will do.
pub(super) fn kubernetes(found: &str) -> Finding {
    let number = found.trim_start_matches('v');
    match Version::parse(number) {
        Ok(version) if version < OLDEST => {
            Finding::error("kubernetes", format!("{found} is too old"))
                .remedy("use Kubernetes 1.20 or newer")
        }
        _ => Finding::ok("kubernetes", found),
    }
}

/// Whether the orchestrator is there, ready, and of a version that fits.
pub(super) fn look(found: &Orchestrator, plugin: &str) -> Vec<Finding> {
    match found {
        Orchestrator::NotInstalled => vec![
            Finding::error(CHECK, "DI Orchestrator is not installed").remedy("kubectl di install"),
        ],
        Orchestrator::Hidden => vec![
            Finding::new(
                CHECK,
                super::State::Unknown,
                "not allowed to look at the deployment in namespace di-system",
            )
            .remedy("ask somebody who may look, or for the right to do so"),
        ],
        Orchestrator::Installed(installed) => {
            let mut findings = vec![ready(installed)];
            if let Some(version) = &installed.version
                && let Ok(plugin) = Version::parse(plugin)
                && let Some(skew) = versions::between(&plugin, version)
            {
                let (message, remedy) = skew;
                findings.push(Finding::warning(CHECK, message).remedy(remedy));
            }
            findings
        }
    }
}

fn ready(installed: &Installed) -> Finding {
    let Installed { wanted, ready, .. } = installed;
    let version = installed.version.as_ref();
    let what = match installed.flavour {
        Flavour::Whole => "",
        Flavour::WebhookOnly => ", webhooks only",
    };
    let version = version.map_or("of unknown version".to_owned(), ToString::to_string);
    let message = format!("{version}{what}, {ready} of {wanted} replicas are ready");
    let pods =
        "see why: kubectl -n di-system describe pods -l app.kubernetes.io/name=di-orchestrator";
    if *ready == 0 {
        Finding::error(CHECK, message).remedy(pods)
    } else if ready < wanted {
        Finding::warning(CHECK, message).remedy(pods)
    } else {
        Finding::ok(CHECK, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::State;

    fn installed(version: &str, ready: i32) -> Orchestrator {
        Orchestrator::Installed(Box::new(Installed {
            version: Version::parse(version).ok(),
            images: vec!["di".to_owned()],
            flavour: Flavour::Whole,
            wanted: 2,
            ready,
        }))
    }

    #[test]
    fn an_orchestrator_is_as_well_as_its_replicas() {
        for (ready, state) in [(2, State::Ok), (1, State::Warning), (0, State::Error)] {
            let found = look(&installed("0.1.0", ready), "0.1.0");
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].state, state, "{found:?}");
        }
        let found = look(&installed("0.2.0", 2), "0.1.0");
        assert_eq!(found[1].remedy.as_deref(), Some("upgrade the plugin"));
    }

    #[test]
    fn an_old_kubernetes_is_told() {
        assert_eq!(kubernetes("v1.19.7").state, State::Error);
        assert_eq!(kubernetes("v1.20.2").state, State::Ok);
        assert_eq!(kubernetes("v1.36.0-gke.1").state, State::Ok);
    }
}
