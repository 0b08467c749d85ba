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
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{sleep, timeout},
};
use tracing::{debug, warn};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The timeout for reading the head of a request, and for idle connections.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum age of a connection; it is closed at the latest [`GRACE_PERIOD`] later.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(300);
/// The time for requests in flight when their connection is closed.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

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
    serve_on(listener, health, HEADER_TIMEOUT, shutdown).await;
    Ok(())
}

async fn serve_on(
    listener: TcpListener,
    health: Health,
    header_timeout: Duration,
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
    let (stop, stopping) = watch::channel(());
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // For example too many open files: retry when connections have ended.
                warn!(
                    error = &error as &dyn std::error::Error,
                    "Cannot accept a connection to the health address"
                );
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Connections are limited in time, not in number: a full limit would block the probes.
        let served = serve_connection(stream, router.clone(), header_timeout, stopping.clone());
        tokio::spawn(served);
    }
    drop((listener, stopping));
    stop.send_replace(());
    timeout(GRACE_PERIOD, stop.closed()).await.ok();
}

/// Serves one connection until it is closed, too old, or the server stops.
async fn serve_connection(
    stream: TcpStream,
    router: Router,
    header_timeout: Duration,
    mut stopping: watch::Receiver<()>,
) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    // Without a timer, hyper waits for an incomplete request without limit.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout);
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        _ = timeout(MAX_CONNECTION_AGE, stopping.changed()) => {
            served.as_mut().graceful_shutdown();
            timeout(GRACE_PERIOD, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        debug!(error, "A connection to the health address failed");
    }
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

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
        tokio::spawn(serve_on(health_listener, health, HEADER_TIMEOUT, pending()));
        let _idle = TcpStream::connect(endpoint_address).await.unwrap();
        for (path, code) in [("/healthz", 200), ("/readyz", 503), ("/metrics", 200)] {
            let response = http_get(address, path).await;
            let status = format!("HTTP/1.1 {code} ");
            assert!(response.starts_with(&status), "{path}: {response}");
        }
    }

    #[tokio::test]
    async fn idle_connections_are_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let health = Health::new(|| true, || Ok(String::new()));
        let soon = Duration::from_millis(200);
        tokio::spawn(serve_on(listener, health, soon, pending()));
        for (request, responses) in [
            ("", 0),
            ("GET /healthz HT", 0),
            ("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 1),
        ] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut response = String::new();
            let read = stream.read_to_string(&mut response);
            let read = timeout(Duration::from_secs(20), read).await;
            read.expect("the connection is closed").unwrap();
            assert_eq!(response.matches("200 OK").count(), responses, "{request:?}");
        }
    }
}
