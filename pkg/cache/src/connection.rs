//! Connections to the API server.

use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{Client, Config, client::ConfigExt};
use tower::{BoxError, ServiceBuilder};

/// A client whose small writes leave at once.
///
/// kube's own leaves Nagle's algorithm on (kube-rs/kube#2056): after a rest, a request with a body then waits for an acknowledgement that the
/// other side delays by 40 ms. Nothing is sent a second time: kube's retries would hold one call
/// for minutes, while ours back off by job and have a deadline.
///
/// # Errors
/// When the configuration names files or credentials that cannot be read, or a proxy: programs in a cluster need none.
pub fn client(config: Config) -> kube::Result<Client> {
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
