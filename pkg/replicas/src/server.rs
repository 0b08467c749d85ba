//! The loop that accepts connections, and what bounds them.

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

/// The largest head of a request that is read, in bytes; a connection keeps as much room for what it reads. A token has some 1,500.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Serves until `shutdown` is ready, and then lets the requests that have begun end.
pub async fn serve(listener: TcpListener, state: State, shutdown: impl Future<Output = ()> + Send) {
    let places = Arc::new(Semaphore::new(state.settings.max_connections));
    let connections = Arc::new(ConnectionCounter::new(state.metrics.connections.clone()));
    let settings = state.settings.clone();
    let endpoint = Endpoint::new(state.clone());
    let (stop, stopping) = watch::channel(());
    tokio::pin!(shutdown);
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            () = &mut shutdown => break,
            next = next => next,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, perhaps: they come back as connections end.
                warn!(
                    error = &error as &dyn std::error::Error,
                    "Could not accept a connection"
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Nothing is answered: what was asked is not known, and one answer does not fit all clients.
        let most = settings.max_connections_per_address;
        let Some(counted) = connections.count(peer.ip(), most) else {
            debug!(%peer, "Closed a connection: its address has too many");
            state.metrics.refused_connections.inc();
            continue;
        };
        let served = connection(
            stream,
            peer,
            endpoint.clone(),
            settings.clone(),
            stopping.clone(),
        );
        tokio::spawn(async move {
            served.await;
            drop((place, counted));
        });
    }
    drop((listener, stopping));
    info!("Shutting down, letting requests end");
    stop.send_replace(());
    if timeout(settings.drain, stop.closed()).await.is_err() {
        warn!("Some requests did not end in time");
    }
}

/// Serves one connection until it ends, the server stops, or it is too old: also one whose client reads no answers.
async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    endpoint: Endpoint,
    settings: Settings,
    mut stopping: watch::Receiver<()>,
) {
    // Answers are small, and clients wait for them.
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
        async move { Ok::<_, Infallible>(endpoint.answer(request).await) }
    });
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    tokio::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        _ = timeout(settings.longest_connection, stopping.changed()) => {
            served.as_mut().graceful_shutdown();
            let last = settings.request_timeout * 2;
            timeout(last, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        debug!(error, "A connection broke off");
    }
}

#[cfg(test)]
mod tests;
