//! `/healthz`, `/readyz` and `/metrics`, at an address of their own: who takes all connections of a server keeps no probe away from it.

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

/// How long the head of a request may take to come; a connection idle for so long is closed too. Nothing stays of who went without a word.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection takes requests; it ends soon after, also where its client reads no answers.
const LONGEST_CONNECTION: Duration = Duration::from_secs(300);
/// What requests under way are given once their connection is to end.
const GRACE: Duration = Duration::from_secs(5);

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
        // That the process answers is all it says. What could hold the reconciler or the endpoint up is bounded or ends the process: calls have
        // deadlines, watches are opened anew, one that ends for good ends it, as a lost lease does. A server that is away is no reason to start
        // again: the caches would be empty.
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
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
                // Out of file descriptors, perhaps: they come back as connections end.
                warn!(
                    error = &error as &dyn std::error::Error,
                    "Could not accept a connection"
                );
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // They are bounded in time and not in number: a bound would be what keeps a probe away.
        let served = connection(stream, router.clone(), header_timeout, stopping.clone());
        tokio::spawn(served);
    }
    drop((listener, stopping));
    stop.send_replace(());
    timeout(GRACE, stop.closed()).await.ok();
}

/// Serves one connection until it ends, the server stops, or it is too old.
async fn connection(
    stream: TcpStream,
    router: Router,
    header_timeout: Duration,
    mut stopping: watch::Receiver<()>,
) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    // Without a timer hyper waits for ever for what a client does not send.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout);
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        _ = timeout(LONGEST_CONNECTION, stopping.changed()) => {
            served.as_mut().graceful_shutdown();
            timeout(GRACE, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        debug!(error, "A connection broke off");
    }
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

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
        tokio::spawn(serve_on(probed, health, HEADER_TIMEOUT, pending()));
        let _idle = TcpStream::connect(taken).await.unwrap();
        for (path, code) in [("/healthz", 200), ("/readyz", 503), ("/metrics", 200)] {
            let answer = get(address, path).await;
            let status = format!("HTTP/1.1 {code} ");
            assert!(answer.starts_with(&status), "{path}: {answer}");
        }
    }

    #[tokio::test]
    async fn who_says_nothing_more_loses_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let health = Health::new(|| true, || Ok(String::new()));
        let soon = Duration::from_millis(200);
        tokio::spawn(serve_on(listener, health, soon, pending()));
        for (said, answers) in [
            ("", 0),
            ("GET /healthz HT", 0),
            ("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 1),
        ] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(said.as_bytes()).await.unwrap();
            let mut answer = String::new();
            let read = stream.read_to_string(&mut answer);
            let read = timeout(Duration::from_secs(20), read).await;
            read.expect("the connection is closed").unwrap();
            assert_eq!(answer.matches("200 OK").count(), answers, "{said:?}");
        }
    }
}
