use di_api::names;
use jiff::Timestamp;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Secret,
};
use kube::{Api, error::Error as KubeError};
use x509_parser::pem::Pem;

use super::{Finding, webhooks::CONFIGURATION};
use crate::{Cluster, Result};

const CHECK: &str = "certificates";
const SECRET: &str = "di-webhook-cert";
/// The orchestrator renews with a third of the life left, so this means that it does not.
const SOON: i64 = 14 * 24 * 60 * 60;
const REMEDY: &str = "see why it is not renewed: kubectl -n di-system logs -l app.kubernetes.io/name=di-orchestrator -c manager --prefix --tail=-1; with cert-manager: kubectl -n di-system describe certificate di-webhook";

/// Whether what the API server trusts, and what the webhooks show, lasts.
pub(super) async fn look(cluster: &Cluster) -> Result<Vec<Finding>> {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client.clone());
    let found = configurations.get_opt(CONFIGURATION).await;
    let Some(found) = found.map_err(|error| cluster.error(error))? else {
        return Ok(Vec::new());
    };
    let now = Timestamp::now().as_second();
    let bundle = found.webhooks.into_iter().flatten().next();
    let bundle = bundle.and_then(|webhook| webhook.client_config.ca_bundle);
    // The last of several counts: while authorities change, both are trusted.
    let until = bundle.and_then(|bundle| expiries(&bundle.0).into_iter().max());
    let mut findings = vec![match until {
        Some(until) => judge("caBundle of the webhooks", until, now),
        None => Finding::error(
            CHECK,
            "the webhooks have no caBundle: the API server trusts no certificate of theirs",
        )
        .remedy(REMEDY),
    }];
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), names::SYSTEM_NAMESPACE);
    match secrets.get_opt(SECRET).await {
        // Another program may keep it elsewhere, and not everybody may read it: the caBundle has been seen.
        Ok(None) => {}
        Err(KubeError::Api(status)) if status.is_forbidden() => {}
        Ok(Some(secret)) => {
            let data = secret.data.unwrap_or_default();
            let shown = data
                .get("tls.crt")
                .and_then(|pem| expiries(&pem.0).first().copied());
            findings.push(match shown {
                Some(until) => judge("certificate in Secret di-webhook-cert", until, now),
                None => Finding::error(CHECK, "Secret di-webhook-cert has no certificate")
                    .remedy(REMEDY),
            });
        }
        Err(error) => return Err(cluster.error(error)),
    }
    Ok(findings)
}

/// When each of these certificates expires, in seconds.
fn expiries(pem: &[u8]) -> Vec<i64> {
    let blocks = Pem::iter_from_buffer(pem).filter_map(Result::ok);
    blocks
        .filter_map(|block| {
            let certificate = block.parse_x509().ok()?;
            Some(certificate.validity().not_after.timestamp())
        })
        .collect()
}

fn judge(what: &str, until: i64, now: i64) -> Finding {
    let day = Timestamp::from_second(until).map(|at| at.strftime("%Y-%m-%d").to_string());
    let day = day.unwrap_or_default();
    if until <= now {
        Finding::error(CHECK, format!("{what} expired on {day}")).remedy(REMEDY)
    } else if until - now < SOON {
        Finding::warning(CHECK, format!("{what} expires on {day}")).remedy(REMEDY)
    } else {
        Finding::ok(CHECK, format!("{what} is valid until {day}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::State;

    #[test]
    fn a_certificate_is_judged_by_what_is_left() {
        let until = 1_800_000_000;
        for (now, state) in [
            (until, State::Error),
            (until - SOON + 1, State::Warning),
            (until - SOON, State::Ok),
        ] {
            let found = judge("it", until, now);
            assert_eq!(found.state, state);
            assert!(found.message.ends_with("2027-01-15"), "{found:?}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_expiry() {
        assert!(expiries(b"rubbish").is_empty());
    }
}
