//! Connections to the API server.

use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{Client, Config, client::ConfigExt};
use tower::{BoxError, ServiceBuilder};

/// Builds a client of the API server with `TCP_NODELAY` and without automatic retries.
///
/// kube's own client leaves Nagle's algorithm on (kube-rs/kube#2056). A request with a body on an
/// idle connection then waits 40 ms for the delayed acknowledgement of the server. kube's retries
/// would block one call for minutes; the callers back off per job and have a deadline.
///
/// # Errors
/// When files or credentials of the configuration cannot be read, or when it names a proxy.
/// Programs in a cluster need no proxy.
pub fn build_client(config: Config) -> kube::Result<Client> {
    if let Some(proxy) = config.proxy_url {
        let proxy_url = Box::new(proxy);
        return Err(kube::Error::ProxyProtocolUnsupported { proxy_url });
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let tls = config.rustls_https_connector_with_connector(tcp)?;
    let mut connector = TimeoutConnector::new(tls);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(HyperClient::builder(TokioExecutor::new()).build(connector));
    Ok(Client::new(service, config.default_namespace))
}
