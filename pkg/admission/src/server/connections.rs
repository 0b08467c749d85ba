//! The loop that accepts connections, and what bounds each of them.

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

use super::peers::Peers;
use crate::{Certificates, Metrics, Result, tls};

/// The largest head of a request that is read, in bytes; a connection keeps as much room for what it reads. The API server's have some 300.
const HEAD_LIMIT: u32 = 16 << 10;
/// Requests of one connection that are answered at the same time. An API server that has more makes another connection.
const STREAMS: u32 = 16;
/// How much a peer may send ahead of what is read: of one request, and on one connection. That is as much as all its requests may have, so that
/// those that wait for memory hold up no other.
const STREAM_WINDOW: u32 = 16 << 10;
const CONNECTION_WINDOW: u32 = STREAMS * STREAM_WINDOW;
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// What requests under way are given once the connection is to end.
const GRACE: Duration = Duration::from_secs(10);

/// What connections may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many there may be; further ones wait.
    pub connections: usize,
    /// How many one address may have; further ones are closed. All API servers of a cluster may come from one.
    pub per_address: usize,
    /// How long a peer may take for the handshake, for the head of a request, or to answer a ping.
    pub peer: Duration,
    /// A connection takes no further requests after this time, so that after a rollout all replicas get their share again.
    pub age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            per_address: 64,
            peer: Duration::from_secs(10),
            age: Duration::from_secs(600),
        }
    }
}

/// Serves `router` over TLS 1.2 and 1.3 with whatever certificate `certificates` has, until `shutdown` is over and then until
/// the requests under way are answered.
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
    let free = Arc::new(Semaphore::new(limits.connections));
    let mut peers = Peers::default();
    let (stop, stopping) = watch::channel(());
    tokio::pin!(shutdown);
    loop {
        let next = async {
            let permit = free.clone().acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = &mut shutdown => break,
            next = next => next,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, perhaps: they come back as connections end.
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Could not accept a connection"
                );
                drop(error);
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(counted) = peers.count(peer.ip(), limits.per_address) else {
            tracing::debug!(%peer, "Closed a connection: its address has too many");
            metrics.connection_refused();
            continue;
        };
        let served = connection(
            stream,
            acceptor.clone(),
            router.clone(),
            limits,
            stopping.clone(),
        );
        tokio::spawn(async move {
            served.await;
            drop((counted, permit));
        });
    }
    drop((listener, stopping));
    stop.send_replace(());
    if timeout(GRACE, stop.closed()).await.is_err() {
        tracing::warn!("Some reviews were not answered in time");
    }
    Ok(())
}

/// Serves one connection until it ends, the server stops, or it is too old.
async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    limits: Limits,
    mut stopping: watch::Receiver<()>,
) {
    // Answers are small, and the API server waits for them.
    stream.set_nodelay(true).ok();
    // Boxed, as what comes after it is: a connection is to keep only what it still needs.
    let begins = timeout(limits.peer, async {
        let mut stream = acceptor.accept(stream).await?;
        // hyper looks at its clock from the first byte on only.
        stream.fill_buf().await?;
        std::io::Result::Ok(Box::new(stream))
    });
    let begins = Box::pin(begins);
    let begun = tokio::select! {
        begun = begins => begun,
        _ = stopping.changed() => return,
    };
    let Ok(Ok(stream)) = begun else {
        return;
    };
    let builder = Builder::new(TokioExecutor::new());
    // Told, not guessed: guessing would wait for a hesitant peer for ever.
    let mut builder = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => builder.http2_only(),
        _ => builder.http1_only(),
    };
    // Without timers hyper waits for ever for what a client does not send.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.peer)
        .max_buf_size(HEAD_LIMIT as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(limits.peer)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD_LIMIT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut served = Box::pin(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        _ = timeout(limits.age, stopping.changed()) => {
            served.as_mut().graceful_shutdown();
            timeout(GRACE, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "A connection broke off");
    }
}
