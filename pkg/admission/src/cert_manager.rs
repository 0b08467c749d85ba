use std::{convert::Infallible, sync::Arc, time::Duration};

use di_serve::Certificates;
use jiff::Timestamp;
use kube::Client;
use tokio::{sync::watch, time::sleep};

use crate::{
    certificate::{ServingCert, parse_validity},
    certificate_dir,
    error::{Error, Result},
    inject,
    metrics::Metrics,
    renewal::Renewal,
    secret,
    settings::Settings,
};

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// Interval between reads of a certificate directory. It is short because the API server may trust
/// the new certificate already.
const DIR_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Keeps the served certificate, the Secret and the webhook configurations consistent.
pub(crate) struct CertManager {
    client: Client,
    settings: Settings,
    certificates: Arc<Certificates>,
    metrics: Metrics,
    served: Option<ServedCertificate>,
}

struct ServedCertificate {
    serving_cert: ServingCert,
    expiry: Timestamp,
}

impl CertManager {
    pub(crate) fn new(
        client: Client,
        settings: Settings,
        certificates: Arc<Certificates>,
        metrics: Metrics,
    ) -> Self {
        Self {
            client,
            settings,
            certificates,
            metrics,
            served: None,
        }
    }

    pub(crate) async fn run(mut self, ready: &watch::Sender<bool>) -> Infallible {
        let mut failures = 0;
        loop {
            match self.check_certificate().await {
                Ok(()) => {
                    failures = 0;
                    ready.send_if_modified(|ready| !std::mem::replace(ready, true));
                }
                Err(error) => {
                    failures += 1;
                    log_failure(&error, failures);
                    if !error.is_conflict() {
                        self.metrics.count_certificate_failure();
                    }
                    if !self.is_serving_valid() {
                        ready.send_if_modified(|ready| std::mem::replace(ready, false));
                    } else if matches!(error, Error::ConfigurationMissing(_)) {
                        // A user may delete a webhook configuration to disable the webhooks. The
                        // pod must stay ready for its other functions.
                        ready.send_if_modified(|ready| !std::mem::replace(ready, true));
                    }
                }
            }
            sleep(retry_delay(failures, self.check_interval())).await;
        }
    }

    fn check_interval(&self) -> Duration {
        let interval = self.settings.check_interval;
        match self.settings.certificate_dir {
            Some(_) => interval.min(DIR_CHECK_INTERVAL),
            None => interval,
        }
    }

    /// Reads the certificate from its source and serves it if it is new.
    async fn check_certificate(&mut self) -> Result<()> {
        let Some(dir) = &self.settings.certificate_dir else {
            return self.sync_secret().await;
        };
        let serving_cert = certificate_dir::read_certificate(dir, (self.settings.clock)())?;
        if !self.is_serving(&serving_cert) {
            self.serve_cert(serving_cert)?;
        }
        Ok(())
    }

    /// Renews the certificate in the Secret if needed, injects its CA, then serves it.
    async fn sync_secret(&mut self) -> Result<()> {
        // Read before the certificate, see `WebhookConfiguration::inject_ca`.
        let configurations = inject::read_configurations(&self.client, &self.settings).await;
        let served = self.served.as_ref().map(|served| &served.serving_cert);
        let serving_cert = secret::ensure_certificate(&self.client, &self.settings, served).await?;
        // Without a valid certificate, serve the new one before its CA is injected.
        if !self.is_serving_valid() {
            self.serve_cert(serving_cert.clone())?;
        }
        let mut missing = Ok(());
        for configuration in configurations? {
            match configuration.inject_ca(&serving_cert.ca).await {
                // Continue: the other configuration may exist and needs the CA before the
                // certificate is served.
                Err(error @ Error::ConfigurationMissing(_)) => missing = Err(error),
                other => other?,
            }
        }
        if !self.is_serving(&serving_cert) {
            sleep(self.settings.propagation).await;
            self.serve_cert(serving_cert)?;
        }
        missing
    }

    fn is_serving(&self, serving_cert: &ServingCert) -> bool {
        let served = self.served.as_ref();
        served.is_some_and(|served| served.serving_cert.certificate == serving_cert.certificate)
    }

    fn is_serving_valid(&self) -> bool {
        let served = self.served.as_ref();
        served.is_some_and(|served| (self.settings.clock)() < served.expiry)
    }

    fn serve_cert(&mut self, serving_cert: ServingCert) -> Result<()> {
        let certificate = serving_cert.certified_key().map_err(Error::Unusable)?;
        let leaf = certificate.end_entity_cert().map_err(Error::Tls)?;
        let (_, expiry) = parse_validity(leaf).ok_or(Error::Unusable(Renewal::Unreadable))?;
        self.certificates.set_certificate(certificate);
        self.metrics.set_certificate_expiry(expiry);
        tracing::info!(%expiry, "Serving a new webhook certificate");
        self.served = Some(ServedCertificate {
            serving_cert,
            expiry,
        });
        Ok(())
    }
}

fn log_failure(error: &Error, failures: u32) {
    let cause = error as &dyn std::error::Error;
    if error.is_conflict() {
        tracing::debug!(
            error = cause,
            "Another replica changed the certificate first"
        );
    } else {
        tracing::warn!(
            error = cause,
            failures,
            "Cannot update the webhook certificate, retrying"
        );
    }
}

/// The delay before the next check: short after a failure, doubling up to `interval`.
fn retry_delay(failures: u32, interval: Duration) -> Duration {
    match failures {
        0 => interval,
        n => interval.min(FIRST_BACKOFF * 2_u32.pow((n - 1).min(16))),
    }
}

#[cfg(test)]
mod tests {
    use di_fixtures::{ApiServerMock, Reply};
    use serde_json::json;

    use super::*;

    #[test]
    fn retry_delay_doubles_up_to_interval() {
        let interval = Duration::from_secs(60);
        let seconds: Vec<_> = (0..9).map(|n| retry_delay(n, interval).as_secs()).collect();
        assert_eq!(seconds, [60, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(retry_delay(u32::MAX, interval), interval);
    }

    #[tokio::test(start_paused = true)]
    async fn ready_without_configuration_but_not_on_read_error() {
        for (mutating, validating, expected) in [
            (200_u16, 200_u16, true),
            (404, 200, true),
            (200, 404, true),
            (404, 404, true),
            (404, 500, false),
            (500, 404, false),
        ] {
            let client = ApiServerMock::client(move |request| {
                let code = match request.path.as_str() {
                    path if path.contains("/mutatingwebhook") => mutating,
                    path if path.contains("/validatingwebhook") => validating,
                    _ if request.method == http::Method::POST => 201,
                    _ => 404,
                };
                match code {
                    ..300 => Reply::Object(code, json!({"metadata": {"name": "di-webhook"}})),
                    _ => Reply::error(code, ""),
                }
            });
            let certificates = Certificates::new_shared();
            let settings = Settings::default();
            let metrics = Metrics::default();
            let cert_manager = CertManager::new(client, settings, certificates.clone(), metrics);
            let (ready, mut is_ready) = watch::channel(false);
            tokio::spawn(async move { cert_manager.run(&ready).await });
            let is_ready = is_ready.wait_for(|ready| *ready);
            let is_ready = tokio::time::timeout(Duration::from_secs(600), is_ready).await;
            assert_eq!(is_ready.is_ok(), expected, "{mutating}, {validating}");
            // The certificate is served in any case.
            assert!(certificates.current_certificate().is_some());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn broken_certificate_dir_keeps_last_valid_certificate() {
        let issue = |lifetime| {
            let names = Settings::default().dns_names();
            ServingCert::issue(&names, lifetime, None, Timestamp::now()).unwrap()
        };
        let hour = Duration::from_secs(3600);
        let dir = tempfile::tempdir().unwrap();
        let write = |serving_cert: &ServingCert| {
            std::fs::write(dir.path().join("tls.crt"), &serving_cert.certificate).unwrap();
            std::fs::write(dir.path().join("tls.key"), &serving_cert.key).unwrap();
        };
        // All API calls fail: a certificate directory must not need the API server.
        let settings = Settings {
            certificate_dir: Some(dir.path().to_owned()),
            ..Settings::default()
        };
        let certificates = Certificates::new_shared();
        let client = ApiServerMock::client(|_| Reply::Reset);
        let metrics = Metrics::default();
        let cert_manager = CertManager::new(client, settings, certificates.clone(), metrics);
        let (ready, mut is_ready) = watch::channel(false);
        tokio::spawn(async move { cert_manager.run(&ready).await });

        sleep(Duration::from_secs(300)).await;
        assert!(
            !*is_ready.borrow() && certificates.current_certificate().is_none(),
            "no certificate"
        );
        let earliest = issue(hour);
        write(&earliest);
        is_ready.wait_for(|ready| *ready).await.unwrap();
        let leaf =
            |serving_cert: &ServingCert| serving_cert.certified_key().unwrap().cert[0].clone();
        let served = || certificates.current_certificate().unwrap().cert[0].clone();
        assert_eq!(served(), leaf(&earliest));
        let first = issue(hour);
        write(&first);
        sleep(DIR_CHECK_INTERVAL + FIRST_BACKOFF).await;
        assert_eq!(served(), leaf(&first));

        let second = issue(hour);
        for broken in [
            ServingCert {
                key: second.key.clone(),
                ..first.clone()
            },
            ServingCert {
                certificate: b"garbage".to_vec(),
                ..first.clone()
            },
            ServingCert {
                certificate: Vec::new(),
                key: Vec::new(),
                ca: Vec::new(),
            },
        ] {
            write(&broken);
            sleep(Duration::from_secs(120)).await;
            assert_eq!(served(), leaf(&first));
            assert!(*is_ready.borrow(), "the served certificate is valid");
        }
        write(&second);
        sleep(Duration::from_secs(120)).await;
        assert_eq!(served(), leaf(&second));
    }
}
