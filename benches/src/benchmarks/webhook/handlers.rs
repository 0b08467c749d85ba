//! The handlers that are compared, and their requests.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Result;
use axum::Router;
use di_admission::{
    Access, Certificates, DryRun, DryRunSettings, Limits, Metrics, ServingCert, Settings,
};
use kube::Client;
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::harness::stats::At;

pub const OURS: &str = "webhook";
pub const UNREAD: &str = "handler that ignores the body";
/// Shows what the limits of `pkg/serve` cost.
pub const UNLIMITED: &str = "the same without limits on connections";
/// The request that reviews are of.
pub const ASKED: &str = "0c9a8d74-7f4f-4d5c-9f5d-2f1e3c5b6a79";
pub const ALLOWED: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"0c9a8d74-7f4f-4d5c-9f5d-2f1e3c5b6a79","allowed":true}}"#;

/// A certificate for the webhooks' Service and for this machine.
pub fn certificate() -> Result<(ServingCert, Arc<Certificates>)> {
    let mut names = Settings::default().dns_names().to_vec();
    names.push("localhost".to_owned());
    let hour = Duration::from_secs(3600);
    let bundle = ServingCert::issue(&names, hour, None, jiff::Timestamp::now())?;
    let certificates = Certificates::new_shared();
    certificates.set_certificate(bundle.certified_key()?);
    Ok((bundle, certificates))
}

/// Ours, as they are installed.
pub fn webhook(client: Client) -> Router {
    let access = Access::new(client, Settings::default().authorization_cache_ttl);
    di_admission::router(access, None, None, Metrics::default())
}

/// Ours, as they are installed, with the dry run of pods.
pub fn webhook_with_dry_run(client: Client) -> Router {
    let access = Access::new(client.clone(), Settings::default().authorization_cache_ttl);
    let dry_run = DryRun::new(client, DryRunSettings::default());
    di_admission::router(access, Some(dry_run), None, Metrics::default())
}

pub async fn listen(router: Router, certificates: &Arc<Certificates>) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let forever = std::future::pending();
    // All clients are here.
    let limits = Limits {
        per_address: usize::MAX,
        ..Limits::default()
    };
    tokio::spawn(di_admission::serve(
        listener,
        router,
        certificates.clone(),
        limits,
        Metrics::default(),
        forever,
    ));
    Ok(address)
}

/// Serves over TLS with none of the limits of `pkg/serve`.
pub async fn listen_without_limits(
    router: Router,
    certificates: &Arc<Certificates>,
) -> Result<SocketAddr> {
    let config =
        ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(certificates.clone());
    let listener = TlsListener {
        tcp: TcpListener::bind("127.0.0.1:0").await?,
        tls: TlsAcceptor::from(Arc::new(config)),
    };
    let address = listener.tcp.local_addr()?;
    tokio::spawn(axum::serve(listener, router).into_future());
    Ok(address)
}

struct TlsListener {
    tcp: TcpListener,
    tls: TlsAcceptor,
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((stream, client)) = self.tcp.accept().await else {
                continue;
            };
            stream.set_nodelay(true).ok();
            if let Ok(stream) = self.tls.accept(stream).await {
                return (stream, client);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}

/// Specs of which a review is about 1 KB large, and, with three full templates, about 20 KB.
pub fn specs() -> [(&'static str, Value); 2] {
    let container = |env: usize| {
        let env: Vec<_> = (0..env)
            .map(|i| json!({"name": format!("SETTING_{i:03}"), "value": format!("the value of setting number {i}")}))
            .collect();
        json!({"name": "di-container", "image": "registry.example.org/rl/worker:1", "env": env})
    };
    let template = |env| json!({"template": {"spec": {"containers": [container(env)]}}});
    let small = json!({"coordinator": template(0)});
    let large =
        json!({"coordinator": template(85), "collector": template(85), "learner": template(85)});
    [("1 KB", small), ("20 KB", large)]
}

pub fn at(what: &'static str, unit: &'static str, case: String, x: usize) -> At {
    At {
        benchmark: "B10",
        what,
        unit,
        case,
        x,
    }
}
