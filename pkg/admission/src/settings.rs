use std::{net::SocketAddr, path::PathBuf, time::Duration};

use di_api::names;
use di_plan::GangScheduler;
use jiff::Timestamp;

use crate::dry_run::DryRunSettings;

/// Field manager of the webhooks' writes.
pub(crate) const FIELD_MANAGER: &str = "di-webhook";
/// Time limit of a call to the API server.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of the webhook server and its certificate.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address that the webhooks listen on.
    pub addr: SocketAddr,
    /// Namespace of the Service and the Secret.
    pub namespace: String,
    /// Service that the API server calls; the certificate is issued for its DNS names.
    pub service: String,
    /// Secret with the certificate.
    pub secret: String,
    /// Name of the `MutatingWebhookConfiguration` that gets the CA bundle.
    pub mutating_configuration: String,
    /// Name of the `ValidatingWebhookConfiguration` that gets the CA bundle.
    pub validating_configuration: String,
    /// Directory with `tls.crt` and `tls.key` that another program manages, for example
    /// cert-manager. The Secret and the webhook configurations are then not changed.
    pub certificate_dir: Option<PathBuf>,
    /// Lifetime of a certificate. It is renewed when a third is left, so a third must be longer
    /// than `check_interval` and `propagation`.
    pub lifetime: Duration,
    /// Interval between checks of the Secret and the webhook configurations. The directory is
    /// checked more often.
    pub check_interval: Duration,
    /// Time for which a successful authorization is cached; zero disables the cache.
    pub authorization_cache_ttl: Duration,
    /// Dry run of the pods of new templates; `None` turns it off. It needs permission to create
    /// pods.
    pub dry_run: Option<DryRunSettings>,
    /// The scheduler that places gangs. Jobs that ask for a gang without one get a warning.
    pub gang: Option<GangScheduler>,
    /// Delay between a change of the webhook configurations and serving the new certificate. API
    /// servers need it to read the configurations.
    pub propagation: Duration,
    /// The clock; tests replace it.
    pub clock: fn() -> Timestamp,
    /// Time for which new requests are accepted after the start of a shutdown.
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
            authorization_cache_ttl: Duration::from_secs(10),
            dry_run: None,
            gang: None,
            propagation: Duration::from_secs(30),
            clock: Timestamp::now,
            drain: Duration::from_secs(5),
        }
    }
}

impl Settings {
    /// DNS names of the Service. The API server uses the first one.
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
    fn dns_names_include_all_names_of_service() {
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
