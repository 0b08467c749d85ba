//! `/healthz`, `/readyz` and `/metrics`, at an address of their own: who takes all connections of a server keeps no probe away from it.

use std::{fmt, net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use tokio::net::TcpListener;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the paths tell of.
#[derive(Clone)]
pub struct Health {
    ready: Arc<dyn Fn() -> bool + Send + Sync>,
    metrics: Arc<dyn Fn() -> Result<String, fmt::Error> + Send + Sync>,
}

impl Health {
    /// Tells whether the container is ready, and what it has counted.
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
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let listener = TcpListener::bind(addr)
        .await
        .with_context(|| format!("cannot listen on {addr}"))?;
    serve_on(listener, health, shutdown).await
}

async fn serve_on(
    listener: TcpListener,
    health: Health,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let router = Router::new()
        // That the process answers is all it says. What could hold the reconciler or the endpoint up is bounded or ends the process: calls have
        // deadlines, watches are opened anew, one that ends for good ends it, as a lost lease does. A server that is away is no reason to start
        // again: the caches would be empty.
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health);
    axum::serve(listener, router)
        .with_graceful_shutdown(shutdown)
        .await
        .context("health endpoint failed")
}

async fn readyz(State(health): State<Health>) -> (StatusCode, &'static str) {
    if (health.ready)() {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready")
    }
}

async fn metrics(State(health): State<Health>) -> Result<impl IntoResponse, StatusCode> {
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

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn clients_that_take_all_connections_of_the_endpoint_keep_no_probe_away() {
        let (jobs, _writer) = reflector::store();
        let nobody = Config::new("http://127.0.0.1:9".parse().unwrap());
        let metrics = Metrics::default();
        let state = State::new(
            Client::try_from(nobody).unwrap(),
            Arc::new(JobCache::new(jobs)),
            Arc::new(PodCache::default()),
            Settings {
                max_connections: 1,
                ..Settings::default()
            },
            metrics.clone(),
        );
        let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let probed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let taken = endpoint.local_addr().unwrap();
        let address = probed.local_addr().unwrap();
        let health = server::health_of(&state, metrics);
        tokio::spawn(di_replicas::serve(endpoint, state, pending()));
        tokio::spawn(serve_on(probed, health, pending()));
        let _idle = TcpStream::connect(taken).await.unwrap();
        for (path, code) in [("/healthz", 200), ("/readyz", 503), ("/metrics", 200)] {
            let answer = get(address, path).await;
            let status = format!("HTTP/1.1 {code} ");
            assert!(answer.starts_with(&status), "{path}: {answer}");
        }
    }
}
