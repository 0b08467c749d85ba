//! The server of the endpoint.

use std::convert::Infallible;

use axum::extract::Request;
use di_serve::{Limits, Server};
use tokio::net::TcpListener;
use tower::service_fn;

use crate::{Endpoint, State, polls::MAX_WAIT};

/// Serves until `shutdown` is ready, then waits for the requests in flight.
pub async fn serve(listener: TcpListener, state: State, shutdown: impl Future<Output = ()> + Send) {
    let settings = &state.settings;
    let server = Server {
        name: "replica endpoint",
        limits: Limits {
            connections: settings.max_connections,
            per_address: settings.max_connections_per_address,
            handshake_timeout: settings.header_timeout,
            head_timeout: settings.header_timeout,
            max_age: settings.max_connection_age,
            close_timeout: settings.request_timeout + MAX_WAIT,
            drain_timeout: settings.drain_timeout,
        },
        tls: None,
        metrics: state.metrics.connections.clone(),
    };
    let endpoint = Endpoint::new(state.clone());
    let shutdown = async move {
        shutdown.await;
        state.polls.close();
    };
    let service = service_fn(move |request: Request| {
        let endpoint = endpoint.clone();
        async move { Ok::<_, Infallible>(endpoint.handle_request(request).await) }
    });
    server.serve(listener, service, shutdown).await;
}

#[cfg(test)]
mod tests;
