use di_api::names;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, error::Error as KubeError};

use super::finding::Finding;
use crate::{
    Cluster, HelmRelease, Result,
    install::{helm::repair_remedy, versions},
};

const CHECK: &str = "definitions";

/// Checks that both CustomResourceDefinitions exist and serve both versions.
pub(super) async fn check_crds(
    cluster: &Cluster,
    release: Option<&HelmRelease>,
) -> Result<Vec<Finding>> {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let mut findings = Vec::new();
    for expected in di_api::crds() {
        let name = expected.metadata.name.unwrap_or_default();
        match api.get_opt(&name).await {
            Ok(Some(found)) => findings.push(crd_finding(&name, &found, release)),
            Ok(None) => {
                let missing = format!("CustomResourceDefinition {name} does not exist");
                findings.push(Finding::error(CHECK, missing).with_remedy(repair_remedy(release)));
            }
            // Every authenticated user may use discovery.
            Err(KubeError::Api(status)) if status.is_forbidden() => {
                let served = versions::served_api_versions(cluster).await?;
                return Ok(vec![versions_finding(names::GROUP, &served, release)]);
            }
            Err(error) => return Err(cluster.convert_error(error)),
        }
    }
    Ok(findings)
}

fn crd_finding(
    name: &str,
    found: &CustomResourceDefinition,
    release: Option<&HelmRelease>,
) -> Finding {
    let conditions = found.status.as_ref().and_then(|s| s.conditions.as_ref());
    let established = conditions
        .into_iter()
        .flatten()
        .any(|one| one.type_ == "Established" && one.status == "True");
    if !established {
        return Finding::error(
            CHECK,
            format!("CustomResourceDefinition {name} is not established"),
        )
        .with_remedy(format!("check its conditions: kubectl describe crd {name}"));
    }
    let served = found.spec.versions.iter().filter(|version| version.served);
    let served: Vec<_> = served.map(|version| version.name.clone()).collect();
    versions_finding(name, &served, release)
}

fn versions_finding(subject: &str, served: &[String], release: Option<&HelmRelease>) -> Finding {
    let missing: Vec<_> = [names::VERSION, names::LEGACY_VERSION]
        .into_iter()
        .filter(|version| !served.iter().any(|one| one == version))
        .collect();
    if missing.is_empty() {
        Finding::ok(CHECK, format!("{subject} serves {}", served.join(", ")))
    } else {
        Finding::error(
            CHECK,
            format!("{subject} does not serve {}", missing.join(", ")),
        )
        .with_remedy(repair_remedy(release))
    }
}
