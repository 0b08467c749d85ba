//! The accept loop and the limits of connections.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{ConnectInfo, Request},
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    time::timeout,
};
use tower::service_fn;
use tracing::{debug, info, warn};

use crate::{Endpoint, Settings, State, connection_counter::ConnectionCounter};

/// Limit of a request head in bytes, and the read buffer of a connection. A token has about 1,500.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Serves until `shutdown` is ready, then waits for the requests in flight.
pub async fn serve(listener: TcpListener, state: State, shutdown: impl Future<Output = ()> + Send) {
    let permits = Arc::new(Semaphore::new(state.settings.max_connections));
    let connections = Arc::new(ConnectionCounter::new(state.metrics.connections.clone()));
    let settings = state.settings.clone();
    let endpoint = Endpoint::new(state.clone());
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
                // For example out of file descriptors: connections that end free some.
                warn!(
                    error = &error as &dyn std::error::Error,
                    "Cannot accept a connection to the replica endpoint, retrying"
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Close without a response: the request is not read yet, so its API version is unknown.
        let most = settings.max_connections_per_address;
        let Some(counted) = connections.try_acquire(peer.ip(), most) else {
            debug!(%peer, "Closed a connection: its source address has too many");
            state.metrics.refused_connections.inc();
            continue;
        };
        let served = serve_connection(
            stream,
            peer,
            endpoint.clone(),
            settings.clone(),
            stopping.clone(),
        );
        tokio::spawn(async move {
            served.await;
            drop((permit, counted));
        });
    }
    drop((listener, stopping));
    info!("Shutting down, waiting for requests in flight");
    stop.send_replace(());
    if timeout(settings.drain_timeout, stop.closed())
        .await
        .is_err()
    {
        warn!("Some requests did not end before the drain timeout");
    }
}

/// Serves one connection until it ends, the server stops, or it is too old.
///
/// The age limit also ends connections of clients that do not read responses.
async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    endpoint: Endpoint,
    settings: Settings,
    mut stopping: watch::Receiver<()>,
) {
    // Responses are small and clients wait for them.
    stream.set_nodelay(true).ok();
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.header_timeout)
        .max_buf_size(MAX_HEAD_BYTES);
    let service = service_fn(move |request: Request<_>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        let endpoint = endpoint.clone();
        async move { Ok::<_, Infallible>(endpoint.handle_request(request).await) }
    });
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    tokio::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        _ = timeout(settings.max_connection_age, stopping.changed()) => {
            served.as_mut().graceful_shutdown();
            let last = settings.request_timeout * 2;
            timeout(last, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        debug!(error, "A connection of the replica endpoint failed");
    }
}

#[cfg(test)]
mod tests;
