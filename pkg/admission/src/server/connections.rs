//! Accepts connections and limits each of them.

use std::{sync::Arc, time::Duration};

use axum::Router;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    io::AsyncBufReadExt,
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::peer_connections::PeerConnections;
use crate::{Certificates, Metrics, Result, tls};

/// Maximum size of the head of a request, and of the read buffer of a connection. Heads of the API
/// server have some 300 bytes.
const MAX_HEAD_BYTES: u32 = 16 << 10;
/// Maximum number of concurrent requests of a connection. An API server with more opens another
/// one.
const MAX_STREAMS: u32 = 16;
/// Flow-control window of one request.
const STREAM_WINDOW_BYTES: u32 = 16 << 10;
/// Flow-control window of a connection: the sum of all requests, so that requests that wait for
/// memory do not block others.
const CONNECTION_WINDOW_BYTES: u32 = MAX_STREAMS * STREAM_WINDOW_BYTES;
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Time for running requests to finish before a connection is closed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Limits of the connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of connections. Further ones wait.
    pub connections: usize,
    /// Maximum number of connections of one address. Further ones are closed. All API servers of a
    /// cluster can have the same address.
    pub per_address: usize,
    /// Time limit of a peer for the TLS handshake, the head of a request and the response to a
    /// ping.
    pub peer_timeout: Duration,
    /// Maximum age of a connection, so that the load is balanced again after a rollout.
    pub max_age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            per_address: 64,
            peer_timeout: Duration::from_secs(10),
            max_age: Duration::from_secs(600),
        }
    }
}

/// Serves `router` over TLS 1.2 and 1.3 with the current certificate of `certificates`.
///
/// After `shutdown` completes, it waits for the running requests and returns.
///
/// # Errors
/// When TLS cannot be configured.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    certificates: Arc<Certificates>,
    limits: Limits,
    metrics: Metrics,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let acceptor = TlsAcceptor::from(Arc::new(tls::server_config(certificates)?));
    let permits = Arc::new(Semaphore::new(limits.connections));
    let mut peers = PeerConnections::default();
    let (stop, stopping) = watch::channel(());
    tokio::pin!(shutdown);
    loop {
        let next = async {
            let permit = permits.clone().acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = &mut shutdown => break,
            next = next => next,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // The process may be out of file descriptors until connections end.
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Cannot accept a connection, retrying"
                );
                drop(error);
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(guard) = peers.add_connection(peer.ip(), limits.per_address) else {
            tracing::debug!(%peer, "Closed a connection: its address has too many connections");
            metrics.count_refused_connection();
            continue;
        };
        let served = serve_connection(
            stream,
            acceptor.clone(),
            router.clone(),
            limits,
            stopping.clone(),
        );
        tokio::spawn(async move {
            served.await;
            drop((guard, permit));
        });
    }
    drop((listener, stopping));
    stop.send_replace(());
    if timeout(DRAIN_TIMEOUT, stop.closed()).await.is_err() {
        tracing::warn!("Stopped before all reviews were answered");
    }
    Ok(())
}

/// Serves one connection until it ends, the server stops, or its maximum age is reached.
async fn serve_connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    limits: Limits,
    mut stopping: watch::Receiver<()>,
) {
    // Responses are small, and the API server waits for them.
    stream.set_nodelay(true).ok();
    // Boxed, so that the connection frees the state of the handshake afterwards.
    let handshake = timeout(limits.peer_timeout, async {
        let mut stream = acceptor.accept(stream).await?;
        // hyper starts its header timeout with the first byte, so wait for that byte here.
        stream.fill_buf().await?;
        std::io::Result::Ok(Box::new(stream))
    });
    let handshake = Box::pin(handshake);
    let result = tokio::select! {
        result = handshake => result,
        _ = stopping.changed() => return,
    };
    let Ok(Ok(stream)) = result else {
        return;
    };
    let builder = Builder::new(TokioExecutor::new());
    // Choose the protocol by ALPN; sniffing would block on a silent client.
    let mut builder = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => builder.http2_only(),
        _ => builder.http1_only(),
    };
    // Without timers hyper has no timeouts for a silent client.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.peer_timeout)
        .max_buf_size(MAX_HEAD_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(limits.peer_timeout)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut served = Box::pin(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        _ = timeout(limits.max_age, stopping.changed()) => {
            served.as_mut().graceful_shutdown();
            timeout(DRAIN_TIMEOUT, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "A connection ended with an error");
    }
}
