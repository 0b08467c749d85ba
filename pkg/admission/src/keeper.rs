use std::{convert::Infallible, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::Client;
use tokio::{sync::watch, time::sleep};

use crate::{
    Bundle, Certificates, Error, Metrics, Renewal, Result, Settings, certificate::validity, folder,
    inject, secret,
};

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// How often a folder is looked at, where two small files are read: callers may have been told of the new certificate already.
const FOLDER_INTERVAL: Duration = Duration::from_secs(10);

/// Keeps the served certificate, the Secret and the webhook configurations in step.
pub(crate) struct Keeper {
    client: Client,
    settings: Settings,
    certificates: Arc<Certificates>,
    metrics: Metrics,
    served: Option<Served>,
}

struct Served {
    bundle: Bundle,
    expiry: Timestamp,
}

impl Keeper {
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
            match self.check().await {
                Ok(()) => {
                    failures = 0;
                    ready.send_if_modified(|ready| !std::mem::replace(ready, true));
                }
                Err(error) => {
                    failures += 1;
                    report(&error, failures);
                    if !error.is_conflict() {
                        self.metrics.certificate_failed();
                    }
                    if !self.serves_valid() {
                        ready.send_if_modified(|ready| std::mem::replace(ready, false));
                    } else if matches!(error, Error::ConfigurationMissing(_)) {
                        // Who deletes one wants the webhooks out of the way, not what else the pod serves.
                        ready.send_if_modified(|ready| !std::mem::replace(ready, true));
                    }
                }
            }
            sleep(pause(failures, self.interval())).await;
        }
    }

    fn interval(&self) -> Duration {
        let interval = self.settings.check_interval;
        match self.settings.certificate_dir {
            Some(_) => interval.min(FOLDER_INTERVAL),
            None => interval,
        }
    }

    /// One round.
    async fn check(&mut self) -> Result<()> {
        let Some(dir) = &self.settings.certificate_dir else {
            return self.keep().await;
        };
        let bundle = folder::certificate(dir, (self.settings.clock)())?;
        if !self.serves(&bundle) {
            self.serve(bundle)?;
        }
        Ok(())
    }

    /// What the Secret holds is renewed if due, trusted by the configurations, then served.
    async fn keep(&mut self) -> Result<()> {
        // Read before the certificate, see `Configuration::inject`.
        let configurations = inject::read(&self.client, &self.settings).await;
        let served = self.served.as_ref().map(|served| &served.bundle);
        let bundle = secret::certificate(&self.client, &self.settings, served).await?;
        // Nothing is lost by serving it at once when there is nothing else to serve.
        if !self.serves_valid() {
            self.serve(bundle.clone())?;
        }
        let mut missing = Ok(());
        for configuration in configurations? {
            match configuration.inject(&bundle.authorities).await {
                // The other one may be there, and must know the certificate before it is served.
                Err(error @ Error::ConfigurationMissing(_)) => missing = Err(error),
                other => other?,
            }
        }
        if !self.serves(&bundle) {
            sleep(self.settings.propagation).await;
            self.serve(bundle)?;
        }
        missing
    }

    fn serves(&self, bundle: &Bundle) -> bool {
        let served = self.served.as_ref();
        served.is_some_and(|served| served.bundle.certificate == bundle.certificate)
    }

    fn serves_valid(&self) -> bool {
        let served = self.served.as_ref();
        served.is_some_and(|served| (self.settings.clock)() < served.expiry)
    }

    fn serve(&mut self, bundle: Bundle) -> Result<()> {
        let certificate = bundle.certified_key().map_err(Error::Unusable)?;
        let leaf = certificate.end_entity_cert().map_err(Error::Tls)?;
        let (_, expiry) = validity(leaf).ok_or(Error::Unusable(Renewal::Unreadable))?;
        self.certificates.serve(certificate);
        self.metrics.serving_until(expiry);
        tracing::info!(%expiry, "Serving a new certificate");
        self.served = Some(Served { bundle, expiry });
        Ok(())
    }
}

fn report(error: &Error, failures: u32) {
    let cause = error as &dyn std::error::Error;
    if error.is_conflict() {
        tracing::debug!(error = cause, "Another replica was first");
    } else {
        tracing::warn!(
            error = cause,
            failures,
            "Failed to keep the webhooks' certificate, will retry"
        );
    }
}

/// Short after a failure, doubling to the interval.
fn pause(failures: u32, interval: Duration) -> Duration {
    match failures {
        0 => interval,
        n => interval.min(FIRST_BACKOFF * 2_u32.pow((n - 1).min(16))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn failures_are_retried_soon_and_then_less_often() {
        let interval = Duration::from_secs(60);
        let seconds: Vec<_> = (0..9).map(|n| pause(n, interval).as_secs()).collect();
        assert_eq!(seconds, [60, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause(u32::MAX, interval), interval);
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_ready_where_a_configuration_is_missing_but_not_where_one_cannot_be_read() {
        for (mutating, validating, expected) in [
            (200_u16, 200_u16, true),
            (404, 200, true),
            (200, 404, true),
            (404, 404, true),
            (404, 500, false),
            (500, 404, false),
        ] {
            let answer = move |request: http::Request<kube::client::Body>| {
                let code = match request.uri().path() {
                    path if path.contains("/mutatingwebhook") => mutating,
                    path if path.contains("/validatingwebhook") => validating,
                    _ if request.method() == http::Method::POST => 201,
                    _ => 404,
                };
                let body = if code < 300 {
                    json!({"metadata": {"name": "di-webhook"}})
                } else {
                    let reason = if code == 404 {
                        "NotFound"
                    } else {
                        "InternalError"
                    };
                    json!({"kind": "Status", "status": "Failure", "message": "", "reason": reason, "code": code})
                };
                let body = kube::client::Body::from(body.to_string().into_bytes());
                let answer = http::Response::builder().status(code).body(body);
                std::future::ready(Ok::<_, Infallible>(answer.unwrap()))
            };
            let certificates = Certificates::shared();
            let client = Client::new(tower::service_fn(answer), "default");
            let settings = Settings::default();
            let metrics = Metrics::default();
            let keeper = Keeper::new(client, settings, certificates.clone(), metrics);
            let (ready, mut is_ready) = watch::channel(false);
            tokio::spawn(async move { keeper.run(&ready).await });
            let is_ready = is_ready.wait_for(|ready| *ready);
            let is_ready = tokio::time::timeout(Duration::from_secs(600), is_ready).await;
            assert_eq!(is_ready.is_ok(), expected, "{mutating}, {validating}");
            // With a certificate it could be called meanwhile.
            assert!(certificates.served().is_some());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_folder_is_looked_at_again_and_the_last_good_certificate_is_kept() {
        let issue = |lifetime| {
            let names = Settings::default().dns_names();
            Bundle::issue(&names, lifetime, None, Timestamp::now()).unwrap()
        };
        let hour = Duration::from_secs(3600);
        let dir = tempfile::tempdir().unwrap();
        let write = |bundle: &Bundle| {
            std::fs::write(dir.path().join("tls.crt"), &bundle.certificate).unwrap();
            std::fs::write(dir.path().join("tls.key"), &bundle.key).unwrap();
        };
        // Whatever is asked of the API server fails: nothing may depend on it.
        let refuse = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>("nothing is to be asked")
        });
        let settings = Settings {
            certificate_dir: Some(dir.path().to_owned()),
            ..Settings::default()
        };
        let certificates = Certificates::shared();
        let client = Client::new(refuse, "default");
        let metrics = Metrics::default();
        let keeper = Keeper::new(client, settings, certificates.clone(), metrics);
        let (ready, mut is_ready) = watch::channel(false);
        tokio::spawn(async move { keeper.run(&ready).await });

        sleep(Duration::from_secs(300)).await;
        assert!(
            !*is_ready.borrow() && certificates.served().is_none(),
            "nothing there"
        );
        let earliest = issue(hour);
        write(&earliest);
        is_ready.wait_for(|ready| *ready).await.unwrap();
        let leaf = |bundle: &Bundle| bundle.certified_key().unwrap().cert[0].clone();
        let served = || certificates.served().unwrap().cert[0].clone();
        assert_eq!(served(), leaf(&earliest));
        let first = issue(hour);
        write(&first);
        sleep(FOLDER_INTERVAL + FIRST_BACKOFF).await;
        assert_eq!(served(), leaf(&first));

        let second = issue(hour);
        for broken in [
            Bundle {
                key: second.key.clone(),
                ..first.clone()
            },
            Bundle {
                certificate: b"garbage".to_vec(),
                ..first.clone()
            },
            Bundle {
                certificate: Vec::new(),
                key: Vec::new(),
                authorities: Vec::new(),
            },
        ] {
            write(&broken);
            sleep(Duration::from_secs(120)).await;
            assert_eq!(served(), leaf(&first));
            assert!(*is_ready.borrow(), "what is served is good");
        }
        write(&second);
        sleep(Duration::from_secs(120)).await;
        assert_eq!(served(), leaf(&second));
    }
}
