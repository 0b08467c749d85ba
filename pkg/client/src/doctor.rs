//! The checks of `kubectl di doctor`: problems of the installation and of permissions, with
//! remedies.

pub(crate) mod access;
mod aggregators;
mod certificates;
mod crds;
mod deployment;
mod endpoint;
pub(crate) mod finding;
mod gang;
mod kueue;
mod leader;
mod namespace;
mod permissions;
mod webhooks;

use futures::{FutureExt, future::BoxFuture};

use crate::{
    Cluster, Error, InstallVariant, Orchestrator, Result, find_orchestrator, install::versions,
};

use finding::Finding;

type CheckResult<'a> = BoxFuture<'a, (&'static str, Result<Vec<Finding>>)>;

/// Runs all checks concurrently. `plugin` is the version of the kubectl plugin.
pub async fn run_checks(cluster: &Cluster, plugin: &str) -> Vec<Finding> {
    let kubernetes = match versions::kubernetes_version(cluster).await {
        Ok(version) => version,
        // Without the API server no other check can run.
        Err(error) => {
            let finding = Finding::error("kubernetes", error.to_string());
            return vec![match error {
                // These messages contain the remedy.
                Error::Unreachable { .. } => finding,
                _ => finding.with_remedy(
                    "check that this is the right cluster and that it is running: kubectl cluster-info",
                ),
            }];
        }
    };
    let orchestrator = find_orchestrator(cluster).await;
    let found = orchestrator.as_ref().ok();
    let is_full = match found {
        Some(Orchestrator::Installed(installed)) => installed.variant == InstallVariant::Full,
        // The user may not read the Deployment, so assume the full installation.
        Some(Orchestrator::Forbidden) => true,
        Some(Orchestrator::NotInstalled) | None => false,
    };
    let release = found.and_then(Orchestrator::helm_release);
    let may_be_installed = !matches!(found, Some(Orchestrator::NotInstalled));
    let missing = namespace::find_missing(cluster).await;
    let namespace = match &missing {
        Some(_) => "default",
        None => &cluster.namespace().name,
    };
    let mut checks: Vec<CheckResult<'_>> = vec![
        with_name("definitions", crds::check_crds(cluster, release)),
        with_name(
            "webhooks",
            webhooks::check_webhooks(cluster, namespace, may_be_installed, release),
        ),
        with_name("certificates", certificates::check_certificates(cluster)),
    ];
    if is_full {
        checks.push(with_name("leader", leader::check_leader(cluster)));
        checks.push(with_name(
            "endpoint",
            endpoint::check_endpoint(cluster, release),
        ));
        checks.push(with_name(
            "aggregators",
            aggregators::check_aggregator_config(cluster),
        ));
        checks.push(with_name("kueue", kueue::check_kueue(cluster, release)));
    }
    if let Some(Orchestrator::Installed(installed)) = found
        && let Some(scheduler) = &installed.gang_scheduler
    {
        checks.push(with_name(
            "gang",
            gang::check_gang(cluster, scheduler, release),
        ));
    }
    if missing.is_none() {
        checks.push(with_name(
            "permissions",
            permissions::check_permissions(cluster),
        ));
    }
    let mut findings = vec![deployment::check_kubernetes_version(&kubernetes)];
    findings.extend(missing);
    findings.extend(match &orchestrator {
        Ok(orchestrator) => deployment::check_deployment(orchestrator, plugin),
        Err(error) => vec![Finding::from_error("orchestrator", error)],
    });
    for (check, result) in futures::future::join_all(checks).await {
        match result {
            Ok(found) => findings.extend(found),
            Err(error) => findings.push(Finding::from_error(check, &error)),
        }
    }
    findings
}

fn with_name<'a>(
    check: &'static str,
    check_future: impl Future<Output = Result<Vec<Finding>>> + Send + 'a,
) -> CheckResult<'a> {
    check_future.map(move |result| (check, result)).boxed()
}
