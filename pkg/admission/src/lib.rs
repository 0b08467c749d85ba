//! Admission webhooks of `DIJob` and `AggregatorConfig`, and their certificates.
//!
//! [`run`] serves the webhooks and manages their certificate. Every replica of the manager does so.
//! They share the certificate in a Secret, so they need no leader election.

mod access;
mod cert_manager;
mod certificate;
mod certificate_check;
mod certificate_dir;
mod dry_run;
mod error;
mod inject;
mod metrics;
mod renewal;
pub mod review;
mod secret;
mod server;
mod settings;
mod ttl_cache;

use kube::Client;
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    time::sleep,
};

pub use self::{
    access::Access,
    certificate::ServingCert,
    certificate_check::needs_renewal,
    dry_run::{DryRun, DryRunSettings, PolicyDenials},
    error::{Error, Result},
    metrics::Metrics,
    renewal::Renewal,
    server::{router, serve},
    settings::Settings,
};
pub use di_serve::{Certificates, Limits};

/// Serves the webhooks and manages their certificate until `shutdown` completes.
///
/// `ready` becomes true when a certificate is served that all existing webhook configurations
/// trust. It becomes false when `shutdown` completes or the certificate expires. It stays true
/// while the API server is failing, because a failing API server calls no webhooks.
///
/// # Errors
/// When the address cannot be bound, or the server stops unexpectedly. Failures of the API server
/// are logged and retried.
pub async fn run(
    client: Client,
    settings: Settings,
    metrics: Metrics,
    ready: watch::Sender<bool>,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let listener = TcpListener::bind(settings.addr)
        .await
        .map_err(|source| Error::Listen {
            addr: settings.addr,
            source,
        })?;
    tracing::info!(addr = %settings.addr, "Listening for admission reviews");
    let drain = settings.drain;
    let access = Access::new(client.clone(), settings.authorization_cache_ttl);
    let certificates = Certificates::new_shared();
    let dry_run = settings.dry_run.clone();
    let dry_run = dry_run.map(|settings| DryRun::new(client.clone(), settings));
    let gang = settings.gang.clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = serve(
        listener,
        router(access, dry_run, gang, metrics.clone()),
        certificates.clone(),
        Limits::default(),
        metrics.clone(),
        async move {
            // A dropped sender also requests the stop.
            let _ = stopped.await;
            // New connections arrive until all nodes have removed this pod from the Service.
            sleep(drain).await;
        },
    );
    tokio::pin!(serving);
    let cert_manager = cert_manager::CertManager::new(client, settings, certificates, metrics);

    tokio::select! {
        ended = &mut serving => return ended.and(Err(Error::Stopped)),
        never = cert_manager.run(&ready) => match never {},
        () = shutdown => {}
    }
    ready.send_replace(false);
    drop(stop);
    serving.await
}
