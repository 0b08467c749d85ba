use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::Api;

use super::finding::{Finding, FindingState};
use crate::{
    Cluster, Error, HelmRelease, Result, WebhookState, install::helm::repair_remedy, probe_webhooks,
};

const CHECK: &str = "webhooks";
/// Name of both webhook configurations.
pub(super) const CONFIGURATION: &str = "di-webhook";

/// Checks that the webhook configurations exist and that the API server reaches the webhooks.
pub(super) async fn check_webhooks(
    cluster: &Cluster,
    namespace: &str,
    installed: bool,
    release: Option<&HelmRelease>,
) -> Result<Vec<Finding>> {
    let (configured, probed) = futures::join!(
        configuration_findings(cluster, release),
        probe_webhooks(cluster, namespace)
    );
    let mut findings = match configured {
        Ok(findings) => findings,
        Err(error) => vec![Finding::from_error(CHECK, &error)],
    };
    match probed {
        Ok(probed) => findings.push(reachability_finding(probed, installed, release)),
        // The check of the CustomResourceDefinitions reports it.
        Err(Error::NoSuchResource { .. }) => {}
        Err(error) => findings.push(Finding::from_error(CHECK, &error)),
    }
    Ok(findings)
}

async fn configuration_findings(
    cluster: &Cluster,
    release: Option<&HelmRelease>,
) -> Result<Vec<Finding>> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client.clone());
    let (mutating, validating) = futures::join!(
        mutating.get_opt(CONFIGURATION),
        validating.get_opt(CONFIGURATION)
    );
    let mutating = mutating.map_err(|error| cluster.convert_error(error))?;
    let validating = validating.map_err(|error| cluster.convert_error(error))?;
    let missing: Vec<_> = [
        ("MutatingWebhookConfiguration", mutating.is_none()),
        ("ValidatingWebhookConfiguration", validating.is_none()),
    ]
    .into_iter()
    .filter(|(_, missing)| *missing)
    .map(|(kind, _)| Finding::error(CHECK, format!("{kind} {CONFIGURATION} does not exist")))
    .map(|finding| finding.with_remedy(repair_remedy(release)))
    .collect();
    Ok(missing)
}

fn reachability_finding(
    state: WebhookState,
    installed: bool,
    release: Option<&HelmRelease>,
) -> Finding {
    match state {
        WebhookState::Reachable => Finding::ok(CHECK, "the API server reaches the webhooks"),
        WebhookState::NotCalled => Finding::error(
            CHECK,
            "the API server does not call the webhooks, so invalid jobs are accepted",
        )
        .with_remedy(repair_remedy(release)),
        WebhookState::Unreachable(why) if installed => {
            let message = format!("DIJobs cannot be created or changed: {why}");
            Finding::error(CHECK, message).with_remedy(
                "check the pods and their logs: kubectl -n di-system get pods; \
                 kubectl -n di-system logs -l app.kubernetes.io/name=di-orchestrator -c manager --prefix --tail=-1; \
                 port 9443 must be open between API server and pods",
            )
        }
        WebhookState::Unreachable(why) => {
            let message = format!("DIJobs cannot be created or changed: {why}");
            Finding::error(CHECK, message)
                .with_remedy("the orchestrator is not installed: run kubectl di install, or kubectl di uninstall to remove the webhook configurations")
        }
        WebhookState::Forbidden(why) => Finding::new(CHECK, FindingState::Unknown, why).with_remedy(
            "ask for permission to create DIJobs, or name a namespace with that permission: -n NAMESPACE",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reachable_webhooks_are_ok() {
        assert_eq!(
            reachability_finding(WebhookState::Reachable, true, None).state,
            FindingState::Ok
        );
        assert_eq!(
            reachability_finding(WebhookState::NotCalled, true, None).state,
            FindingState::Error
        );
        let unreachable = WebhookState::Unreachable("refused".to_owned());
        let away = reachability_finding(unreachable, false, None);
        assert!(away.message.ends_with("changed: refused"), "{away:?}");
        assert!(away.remedy.unwrap().contains("kubectl di install"));
    }
}
