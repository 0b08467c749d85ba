use di_api::names;
use jiff::Timestamp;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Secret,
};
use kube::{Api, error::Error as KubeError};
use x509_parser::pem::Pem;

use super::{finding::Finding, webhooks::CONFIGURATION};
use crate::{Cluster, Result};

const CHECK: &str = "certificates";
const SECRET: &str = "di-webhook-cert";
/// Remaining validity in seconds below which the finding is a warning.
///
/// The orchestrator renews with a third of the lifetime left, so renewal has failed by then.
const RENEWAL_OVERDUE_SECONDS: i64 = 14 * 24 * 60 * 60;
const REMEDY: &str = "find out why the certificate is not renewed: kubectl -n di-system logs -l app.kubernetes.io/name=di-orchestrator -c manager --prefix --tail=-1; with cert-manager: kubectl -n di-system describe certificate di-webhook";

/// Checks the expiry of the caBundle and of the serving certificate of the webhooks.
pub(super) async fn check_certificates(cluster: &Cluster) -> Result<Vec<Finding>> {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client.clone());
    let found = configurations.get_opt(CONFIGURATION).await;
    let Some(found) = found.map_err(|error| cluster.convert_error(error))? else {
        return Ok(Vec::new());
    };
    let now = Timestamp::now().as_second();
    let bundle = found.webhooks.into_iter().flatten().next();
    let bundle = bundle.and_then(|webhook| webhook.client_config.ca_bundle);
    // During a CA rotation the bundle has two authorities: the later expiry counts.
    let until = bundle.and_then(|bundle| expiry_times(&bundle.0).into_iter().max());
    let mut findings = vec![match until {
        Some(until) => expiry_finding("caBundle of the webhooks", until, now),
        None => Finding::error(
            CHECK,
            "the webhook configuration has no caBundle, so the API server rejects every certificate of the webhooks",
        )
        .with_remedy(REMEDY),
    }];
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), names::SYSTEM_NAMESPACE);
    match secrets.get_opt(SECRET).await {
        // Another tool may store it elsewhere, and users may lack permission. The caBundle was
        // checked.
        Ok(None) => {}
        Err(KubeError::Api(status)) if status.is_forbidden() => {}
        Ok(Some(secret)) => {
            let data = secret.data.unwrap_or_default();
            let expiry = data
                .get("tls.crt")
                .and_then(|pem| expiry_times(&pem.0).first().copied());
            findings.push(match expiry {
                Some(until) => expiry_finding("certificate in Secret di-webhook-cert", until, now),
                None => Finding::error(CHECK, "Secret di-webhook-cert contains no certificate")
                    .with_remedy(REMEDY),
            });
        }
        Err(error) => return Err(cluster.convert_error(error)),
    }
    Ok(findings)
}

/// Expiry of each certificate, in seconds since the Unix epoch.
fn expiry_times(pem: &[u8]) -> Vec<i64> {
    let blocks = Pem::iter_from_buffer(pem).filter_map(Result::ok);
    blocks
        .filter_map(|block| {
            let certificate = block.parse_x509().ok()?;
            Some(certificate.validity().not_after.timestamp())
        })
        .collect()
}

fn expiry_finding(subject: &str, until: i64, now: i64) -> Finding {
    let day = Timestamp::from_second(until).map(|at| at.strftime("%Y-%m-%d").to_string());
    let day = day.unwrap_or_default();
    if until <= now {
        Finding::error(CHECK, format!("{subject} expired on {day}")).with_remedy(REMEDY)
    } else if until - now < RENEWAL_OVERDUE_SECONDS {
        Finding::warning(CHECK, format!("{subject} expires on {day}")).with_remedy(REMEDY)
    } else {
        Finding::ok(CHECK, format!("{subject} is valid until {day}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FindingState;

    #[test]
    fn certificate_severity_follows_remaining_validity() {
        let until = 1_800_000_000;
        for (now, state) in [
            (until, FindingState::Error),
            (until - RENEWAL_OVERDUE_SECONDS + 1, FindingState::Warning),
            (until - RENEWAL_OVERDUE_SECONDS, FindingState::Ok),
        ] {
            let found = expiry_finding("it", until, now);
            assert_eq!(found.state, state);
            assert!(found.message.ends_with("2027-01-15"), "{found:?}");
        }
    }

    #[test]
    fn invalid_pem_has_no_expiry() {
        assert!(expiry_times(b"not a certificate").is_empty());
    }
}
