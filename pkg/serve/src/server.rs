//! The accept loop.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Extension, extract::ConnectInfo};
use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tower::Layer;

use crate::{HttpService, Limits, address_limiter::AddressLimiter, connection::serve_connection};

/// Metrics of the connections of a server.
#[derive(Clone, Debug, Default)]
pub struct ConnectionMetrics {
    /// Open connections.
    pub open: Gauge,
    /// Connections that were closed because their address had too many.
    pub refused: Counter,
}

/// A server of HTTP/1, or with TLS of HTTP/1 and HTTP/2.
#[derive(Clone, Debug)]
pub struct Server {
    /// Name of the server in log messages.
    pub name: &'static str,
    /// Limits of its connections.
    pub limits: Limits,
    /// The configuration of TLS, see [`tls_config`](crate::tls_config).
    pub tls: Option<Arc<ServerConfig>>,
    /// Metrics of its connections.
    pub metrics: ConnectionMetrics,
}

/// Counts one connection until it is dropped.
struct OpenConnection {
    open: Gauge,
    _permits: (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit),
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.open.dec();
    }
}

impl Server {
    /// Serves until `shutdown` completes, then waits for the running requests and returns.
    ///
    /// Each request has the address of its client as the extension [`ConnectInfo`].
    pub async fn serve(
        self,
        listener: TcpListener,
        service: impl HttpService,
        shutdown: impl Future<Output = ()>,
    ) {
        let Self { name, limits, .. } = self;
        let tls = self.tls.clone().map(TlsAcceptor::from);
        let permits = Arc::new(Semaphore::new(
            limits.connections.min(Semaphore::MAX_PERMITS),
        ));
        let mut addresses = AddressLimiter::new(limits.per_address);
        let (stop, stopping) = watch::channel(());
        tokio::pin!(shutdown);
        loop {
            let (stream, client, open) = tokio::select! {
                () = &mut shutdown => break,
                accepted = self.accept(&listener, &permits, &mut addresses) => accepted,
            };
            let service = Extension(ConnectInfo(client)).layer(service.clone());
            let served = serve_connection(stream, tls.clone(), limits, service, stopping.clone());
            tokio::spawn(async move {
                served.await;
                drop(open);
            });
        }
        drop((listener, stopping));
        stop.send_replace(());
        if timeout(limits.drain_timeout, stop.closed()).await.is_err() {
            tracing::warn!(server = name, "Stopped before all requests were answered");
        }
    }

    /// Accepts the next connection that the limits allow.
    async fn accept(
        &self,
        listener: &TcpListener,
        permits: &Arc<Semaphore>,
        addresses: &mut AddressLimiter,
    ) -> (TcpStream, SocketAddr, OpenConnection) {
        loop {
            // The semaphore is never closed, so this cannot fail.
            let permit = permits.clone().acquire_owned().await.ok();
            let (stream, client) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // The process may be out of file descriptors until connections end.
                    tracing::warn!(
                        server = self.name,
                        error = &error as &dyn std::error::Error,
                        "Cannot accept a connection, retrying"
                    );
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            // Close without a response: the request is not read yet, so its version is unknown.
            let Some(address_permit) = addresses.try_acquire(client.ip()) else {
                tracing::debug!(
                    server = self.name, %client,
                    "Closed a connection: its address has too many connections"
                );
                self.metrics.refused.inc();
                continue;
            };
            let open = self.metrics.open.clone();
            open.inc();
            let open = OpenConnection {
                open,
                _permits: (permit, address_permit),
            };
            return (stream, client, open);
        }
    }
}
