use di_api::names;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, error::Error as KubeError};

use super::Finding;
use crate::{Cluster, Result, versions};

const CHECK: &str = "definitions";
const REMEDY: &str = "kubectl di install, or kubectl di upgrade where it is installed";

/// Whether both kinds are known, in both versions.
pub(super) async fn look(cluster: &Cluster) -> Result<Vec<Finding>> {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let mut findings = Vec::new();
    for wanted in di_api::crds() {
        let name = wanted.metadata.name.unwrap_or_default();
        match api.get_opt(&name).await {
            Ok(Some(found)) => findings.push(judge(&name, &found)),
            Ok(None) => {
                let missing = format!("{name} is not defined");
                findings.push(Finding::error(CHECK, missing).remedy(REMEDY));
            }
            // Everybody may ask what is served.
            Err(KubeError::Api(status)) if status.is_forbidden() => {
                return Ok(vec![discovered(&versions::served(cluster).await?)]);
            }
            Err(error) => return Err(cluster.error(error)),
        }
    }
    Ok(findings)
}

fn judge(name: &str, found: &CustomResourceDefinition) -> Finding {
    let conditions = found.status.as_ref().and_then(|s| s.conditions.as_ref());
    let established = conditions
        .into_iter()
        .flatten()
        .any(|one| one.type_ == "Established" && one.status == "True");
    if !established {
        return Finding::error(CHECK, format!("{name} is not established"))
            .remedy(format!("see why: kubectl describe crd {name}"));
    }
    let served = found.spec.versions.iter().filter(|version| version.served);
    let served: Vec<_> = served.map(|version| version.name.clone()).collect();
    serves(name, &served)
}

fn discovered(served: &[String]) -> Finding {
    serves(names::GROUP, served)
}

fn serves(what: &str, served: &[String]) -> Finding {
    let missing: Vec<_> = [names::VERSION, names::LEGACY_VERSION]
        .into_iter()
        .filter(|version| !served.iter().any(|one| one == version))
        .collect();
    if missing.is_empty() {
        Finding::ok(CHECK, format!("{what} serves {}", served.join(", ")))
    } else {
        Finding::error(
            CHECK,
            format!("{what} does not serve {}", missing.join(", ")),
        )
        .remedy(REMEDY)
    }
}
