use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::Api;

use super::{Finding, State};
use crate::{Cluster, Error, Probe, Result, probe};

const CHECK: &str = "webhooks";
/// Both configurations are called so.
pub(super) const CONFIGURATION: &str = "di-webhook";

/// Whether the API server is told of the webhooks, and reaches them.
pub(super) async fn look(
    cluster: &Cluster,
    namespace: &str,
    installed: bool,
) -> Result<Vec<Finding>> {
    let (configured, probed) = futures::join!(configured(cluster), probe(cluster, namespace));
    let mut findings = match configured {
        Ok(findings) => findings,
        Err(error) => vec![Finding::failed(CHECK, &error)],
    };
    match probed {
        Ok(probed) => findings.push(judge(probed, installed)),
        // That is told of the definitions.
        Err(Error::NoSuchResource { .. }) => {}
        Err(error) => findings.push(Finding::failed(CHECK, &error)),
    }
    Ok(findings)
}

async fn configured(cluster: &Cluster) -> Result<Vec<Finding>> {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client.clone());
    let (mutating, validating) = futures::join!(
        mutating.get_opt(CONFIGURATION),
        validating.get_opt(CONFIGURATION)
    );
    let mutating = mutating.map_err(|error| cluster.error(error))?;
    let validating = validating.map_err(|error| cluster.error(error))?;
    let missing: Vec<_> = [
        ("MutatingWebhookConfiguration", mutating.is_none()),
        ("ValidatingWebhookConfiguration", validating.is_none()),
    ]
    .into_iter()
    .filter(|(_, missing)| *missing)
    .map(|(kind, _)| Finding::error(CHECK, format!("{kind} {CONFIGURATION} does not exist")))
    .map(|finding| {
        finding.remedy("kubectl di install, or kubectl di upgrade where it is installed")
    })
    .collect();
    Ok(missing)
}

fn judge(probed: Probe, installed: bool) -> Finding {
    match probed {
        Probe::Answers => Finding::ok(CHECK, "the API server reaches them"),
        Probe::NotAsked => Finding::error(
            CHECK,
            "the API server does not ask them: what cannot run is not refused",
        )
        .remedy("kubectl di install, or kubectl di upgrade where it is installed"),
        Probe::Unreachable(why) if installed => {
            let message = format!("DIJobs cannot be created or changed: {why}");
            Finding::error(CHECK, message).remedy(
                "see whether pods are ready, and what they log: kubectl -n di-system get pods; \
                 kubectl -n di-system logs -l app.kubernetes.io/name=di-orchestrator -c manager --prefix --tail=-1; \
                 the network between API server and pods must let port 9443 through",
            )
        }
        Probe::Unreachable(why) => {
            let message = format!("DIJobs cannot be created or changed: {why}");
            Finding::error(CHECK, message)
                .remedy("nothing serves them: kubectl di install, or kubectl di uninstall removes what is left")
        }
        Probe::Forbidden(why) => Finding::new(CHECK, State::Unknown, why).remedy(
            "ask for the right to create DIJobs, or pass a namespace where you have it by -n",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_is_well() {
        assert_eq!(judge(Probe::Answers, true).state, State::Ok);
        assert_eq!(judge(Probe::NotAsked, true).state, State::Error);
        let away = judge(Probe::Unreachable("refused".to_owned()), false);
        assert!(away.message.ends_with("changed: refused"), "{away:?}");
        assert!(away.remedy.unwrap().contains("kubectl di install"));
    }
}
