use std::{net::SocketAddr, path::PathBuf, time::Duration};

use di_api::names;
use jiff::Timestamp;

/// How the webhooks are served, and where their certificate is kept.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address that the webhooks listen on.
    pub addr: SocketAddr,
    /// Namespace of the Service and the Secret.
    pub namespace: String,
    /// Service that the API server calls; the certificate is made for its names.
    pub service: String,
    /// Secret that holds the certificate.
    pub secret: String,
    /// The `MutatingWebhookConfiguration` that is to trust the certificate.
    pub mutating_configuration: String,
    /// The `ValidatingWebhookConfiguration` that is to trust the certificate.
    pub validating_configuration: String,
    /// Folder with `tls.crt` and `tls.key` that another program keeps, as cert-manager does. With it neither Secret nor
    /// configurations are touched.
    pub certificate_dir: Option<PathBuf>,
    /// How long a certificate lasts; it is renewed when a third is left, so that must be longer than `check_interval` and
    /// `propagation`.
    pub lifetime: Duration,
    /// How often the Secret and the configurations are looked at; the folder is more often.
    pub check_interval: Duration,
    /// How long a user is believed to have a right that the API server has confirmed; zero asks every time.
    pub rights_kept: Duration,
    /// What API servers get to hear of a changed webhook configuration before the new certificate meets them.
    pub propagation: Duration,
    /// What time it is; a machine's clock may be wrong.
    pub clock: fn() -> Timestamp,
    /// How long requests are still taken once the shutdown has begun.
    pub drain: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            addr: SocketAddr::from(([0, 0, 0, 0], 9443)),
            namespace: names::SYSTEM_NAMESPACE.to_owned(),
            service: names::WEBHOOK_SERVICE.to_owned(),
            secret: "di-webhook-cert".to_owned(),
            mutating_configuration: "di-webhook".to_owned(),
            validating_configuration: "di-webhook".to_owned(),
            certificate_dir: None,
            lifetime: Duration::from_secs(90 * 24 * 60 * 60),
            check_interval: Duration::from_secs(60),
            rights_kept: Duration::from_secs(10),
            propagation: Duration::from_secs(30),
            clock: Timestamp::now,
            drain: Duration::from_secs(5),
        }
    }
}

impl Settings {
    /// Names of the Service; the first is the one that the API server asks for.
    pub fn dns_names(&self) -> [String; 3] {
        let name = format!("{}.{}", self.service, self.namespace);
        [
            format!("{name}.svc"),
            name.clone(),
            format!("{name}.svc.cluster.local"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_is_for_every_name_of_the_service() {
        assert_eq!(
            Settings::default().dns_names(),
            [
                "di-webhook.di-system.svc",
                "di-webhook.di-system",
                "di-webhook.di-system.svc.cluster.local",
            ]
        );
    }
}
