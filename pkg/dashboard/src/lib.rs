//! The server of `kubectl di dashboard`: a static page, and JSON about the jobs of a cluster.
//!
//! It listens on a loopback address only, and does everything with the rights of the user. The
//! page exchanges a token from its address for a cookie; the module `guard` has all checks.

mod actions;
mod error;
mod guard;
mod logs;
mod page;
mod request;
mod routes;
mod rows;
mod shared;
mod timeline;
mod views;
mod watch;

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    extract::Request,
    response::{IntoResponse, Response},
};
use di_client::Cluster;
use di_serve::{ConnectionMetrics, Limits, Server};
use tokio::{net::TcpListener, time::timeout};
use tower::{ServiceExt, service_fn};

use error::Error;
use shared::Shared;

/// Limits of the connections. A browser opens at most six connections to a host.
const LIMITS: Limits = Limits {
    connections: 64,
    per_address: 64,
    handshake_timeout: Duration::from_secs(10),
    head_timeout: Duration::from_secs(30),
    // The page opens its stream again, so this is not noticed.
    max_age: Duration::from_secs(24 * 60 * 60),
    close_timeout: Duration::from_millis(200),
    // Streams never end by themselves.
    drain_timeout: Duration::from_millis(300),
};
/// Time limit for the start of a response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The settings of a dashboard.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The loopback address to listen on.
    pub address: IpAddr,
    /// The port. 0 selects a free one.
    pub port: u16,
    /// Whether the page first shows the jobs of all namespaces.
    pub all_namespaces: bool,
    /// Whether the page cannot change anything.
    pub read_only: bool,
}

/// A dashboard that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Other hosts could reach the address.
    #[error("{0} is not a loopback address; to use the dashboard from elsewhere: ssh -L")]
    NotLoopback(IpAddr),
    /// The port is in use, or the address does not exist.
    #[error("unable to listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
}

/// A dashboard that listens on its address.
pub struct Dashboard {
    listener: TcpListener,
    shared: Arc<Shared>,
    limits: Limits,
}

impl Dashboard {
    /// Listens on the address without accepting connections.
    ///
    /// # Errors
    /// When the address is not a loopback address, or is in use.
    pub async fn bind(cluster: Cluster, options: Options) -> Result<Self, StartError> {
        if !options.address.is_loopback() {
            return Err(StartError::NotLoopback(options.address));
        }
        let address = SocketAddr::new(options.address, options.port);
        let failed = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let Options {
            all_namespaces,
            read_only,
            ..
        } = options;
        let shared = Shared::new(cluster, address, all_namespaces, read_only);
        Ok(Self {
            listener,
            shared: Arc::new(shared),
            limits: LIMITS,
        })
    }

    /// The address of the page with its token. With the namespace and name of a job, the page shows
    /// this job first. Browsers send no fragment to a server, so the token appears in no log.
    pub fn url(&self, job: Option<(&str, &str)>) -> String {
        let Shared { address, token, .. } = &*self.shared;
        let job = job.map(|(namespace, name)| format!("&job={namespace}/{name}"));
        format!("http://{address}/#token={token}{}", job.unwrap_or_default())
    }

    /// Serves until `shutdown` completes.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let (shared, routes) = (self.shared.clone(), routes::build_routes(&self.shared));
        let service = service_fn(move |request: Request| {
            let (shared, routes) = (shared.clone(), routes.clone());
            async move { Ok::<_, Infallible>(respond(&shared, routes, request).await) }
        });
        let server = Server {
            name: "dashboard",
            limits: self.limits,
            tls: None,
            metrics: ConnectionMetrics::default(),
        };
        server.serve(self.listener, service, shutdown).await;
    }
}

/// Checks a request and handles it. Every response has the security headers.
async fn respond(shared: &Shared, routes: Router, request: Request) -> Response {
    let path = request.uri().path();
    let checked = shared.check_request(request.method(), path, request.headers());
    let mut response = match checked {
        Err(error) => error.into_response(),
        Ok(()) => match timeout(REQUEST_TIMEOUT, routes.oneshot(request)).await {
            Ok(Ok(response)) => response,
            Err(_) => Error::Timeout.into_response(),
        },
    };
    guard::add_security_headers(response.headers_mut());
    response
}

#[cfg(test)]
mod tests;
