//! Serves `/healthz`, `/readyz` and `/metrics`.
//!
//! They have their own address, so that clients that use up all connections of the endpoint do not
//! block the probes.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use di_serve::{ConnectionMetrics, Limits};
use tokio::net::TcpListener;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Connections are limited in time, not in number: a full limit would block the probes.
const LIMITS: Limits = Limits {
    connections: usize::MAX,
    per_address: usize::MAX,
    handshake_timeout: Duration::from_secs(10),
    head_timeout: Duration::from_secs(10),
    max_age: Duration::from_secs(300),
    close_timeout: Duration::from_secs(5),
    drain_timeout: Duration::from_secs(5),
};

/// The readiness and the metrics that the paths return.
#[derive(Clone)]
pub struct Health {
    ready: Arc<dyn Fn() -> bool + Send + Sync>,
    metrics: Arc<dyn Fn() -> Result<String, fmt::Error> + Send + Sync>,
}

impl Health {
    /// Creates it from functions for the readiness and for the text of the metrics.
    pub fn new(
        ready: impl Fn() -> bool + Send + Sync + 'static,
        metrics: impl Fn() -> Result<String, fmt::Error> + Send + Sync + 'static,
    ) -> Self {
        Self {
            ready: Arc::new(ready),
            metrics: Arc::new(metrics),
        }
    }
}

/// Serves until `shutdown` resolves.
pub async fn serve(
    addr: SocketAddr,
    health: Health,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    let listener = TcpListener::bind(addr)
        .await
        .with_context(|| format!("cannot listen on {addr}"))?;
    serve_on(listener, health, shutdown).await;
    Ok(())
}

async fn serve_on(
    listener: TcpListener,
    health: Health,
    shutdown: impl Future<Output = ()> + Send,
) {
    let router = Router::new()
        // Liveness only checks that the process responds. Anything that could block the reconciler
        // or the endpoint has a deadline, is retried or ends the process. An unreachable API server
        // must not cause a restart, because the caches would be empty afterwards.
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(get_readyz))
        .route("/metrics", get(get_metrics))
        .with_state(health);
    let server = di_serve::Server {
        name: "health",
        limits: LIMITS,
        tls: None,
        metrics: ConnectionMetrics::default(),
    };
    server.serve(listener, router, shutdown).await;
}

async fn get_readyz(State(health): State<Health>) -> (StatusCode, &'static str) {
    if (health.ready)() {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready")
    }
}

async fn get_metrics(State(health): State<Health>) -> Result<impl IntoResponse, StatusCode> {
    let text = (health.metrics)().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, OPEN_METRICS)], text))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use di_cache::{JobCache, PodCache};
    use di_replicas::{Metrics, Settings, State};
    use kube::{Client, Config, runtime::reflector};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;
    use crate::server;

    async fn http_get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn exhausted_endpoint_connections_do_not_block_probes() {
        let (jobs, _writer) = reflector::store();
        let unreachable = Config::new("http://127.0.0.1:9".parse().unwrap());
        let metrics = Metrics::default();
        let state = State::new(
            Client::try_from(unreachable).unwrap(),
            Arc::new(JobCache::new(jobs)),
            Arc::new(PodCache::default()),
            Settings {
                max_connections: 1,
                ..Settings::default()
            },
            metrics.clone(),
        );
        let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let health_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint_address = endpoint.local_addr().unwrap();
        let address = health_listener.local_addr().unwrap();
        let health = server::build_health(&state, metrics);
        tokio::spawn(di_replicas::serve(endpoint, state, pending()));
        tokio::spawn(serve_on(health_listener, health, pending()));
        let _idle = TcpStream::connect(endpoint_address).await.unwrap();
        for (path, code) in [("/healthz", 200), ("/readyz", 503), ("/metrics", 200)] {
            let response = http_get(address, path).await;
            let status = format!("HTTP/1.1 {code} ");
            assert!(response.starts_with(&status), "{path}: {response}");
        }
    }
}
