//! Admission webhooks of `DIJob` and `AggregatorConfig`, and their certificates.
//!
//! [`run`] serves them and keeps their certificate. Every replica of the manager does so alike: they agree by the Secret that
//! holds the certificate, so none of them has to lead.

mod access;
mod api_call;
mod certificate;
mod error;
mod folder;
mod inject;
mod keeper;
mod metrics;
mod renewal;
pub mod review;
mod secret;
mod server;
mod settings;
mod tls;

use kube::Client;
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    time::sleep,
};

pub use self::{
    access::Access,
    certificate::Bundle,
    error::{Error, Result},
    metrics::Metrics,
    renewal::{Renewal, needs_renewal},
    server::{Limits, router, serve},
    settings::Settings,
    tls::Certificates,
};

/// Serves the webhooks and keeps their certificate until `shutdown` is over.
///
/// `ready` becomes true once a certificate is served and every webhook configuration that there is trusts it, and false again when
/// `shutdown` is over or the served certificate has expired. It stays true through failures of the API server, which would not call us then.
///
/// # Errors
/// When the address cannot be listened on, or the server ends by itself. Failures of the API server are logged and retried.
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
    let access = Access::new(client.clone(), settings.rights_kept);
    let certificates = Certificates::shared();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = serve(
        listener,
        router(access, metrics.clone()),
        certificates.clone(),
        Limits::default(),
        metrics.clone(),
        async move {
            // A sender that was dropped means to stop, too.
            let _ = stopped.await;
            // New connections arrive until every node has heard that this pod is leaving the Service.
            sleep(drain).await;
        },
    );
    tokio::pin!(serving);
    let keeper = keeper::Keeper::new(client, settings, certificates, metrics);

    tokio::select! {
        ended = &mut serving => return ended.and(Err(Error::Stopped)),
        never = keeper.run(&ready) => match never {},
        () = shutdown => {}
    }
    ready.send_replace(false);
    drop(stop);
    serving.await
}
