//! `/healthz`, `/readyz` and `/metrics` of the manager.

use std::{future::Future, net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{net::TcpListener, sync::watch};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the paths tell of.
#[derive(Clone)]
pub struct Health {
    /// All of these must be true for the pod to be ready.
    pub ready: Vec<watch::Receiver<bool>>,
    /// What `/metrics` prints.
    pub registry: Arc<Registry>,
}

/// Serves until `shutdown` resolves.
pub async fn serve(
    addr: SocketAddr,
    health: Health,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let router = Router::new()
        // That the process answers is all it says. What could hold the reconciler up is bounded or ends the process: calls have deadlines,
        // watches are opened anew, one that ends for good ends it, as a lost lease does. A server that is away is no reason to start again:
        // the caches would be empty.
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health);
    let listener = TcpListener::bind(addr)
        .await
        .with_context(|| format!("cannot listen on {addr}"))?;
    axum::serve(listener, router)
        .with_graceful_shutdown(shutdown)
        .await
        .context("health endpoint failed")
}

async fn readyz(State(health): State<Health>) -> (StatusCode, &'static str) {
    if health.ready.iter().all(|ready| *ready.borrow()) {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready")
    }
}

async fn metrics(State(health): State<Health>) -> Result<impl IntoResponse, StatusCode> {
    let mut text = String::new();
    encode(&mut text, &health.registry).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, OPEN_METRICS)], text))
}
