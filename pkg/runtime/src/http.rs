//! The HTTP client of the runtime.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, dns::Resolve};

use crate::{Error, Result};

/// How long a connection may take to come up, name lookup included.
const CONNECT: Duration = Duration::from_secs(3);

/// A client that looks names up as the system does.
pub fn new_client() -> Result<Client> {
    client_builder().build().map_err(Error::HttpClient)
}

/// A client that looks names up with `resolver`.
pub fn client_with(resolver: Arc<dyn Resolve>) -> Result<Client> {
    client_builder()
        .dns_resolver(resolver)
        .build()
        .map_err(Error::HttpClient)
}

fn client_builder() -> reqwest::ClientBuilder {
    // TLS is compiled in for buckets.
    provide_tls();
    // Everything that is called is inside of the cluster: no TLS, no proxy, and no redirect to somewhere
    // else.
    Client::builder()
        .tls_certs_only([])
        .connect_timeout(CONNECT)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
}

/// Chooses what TLS computes with, for clients cannot be made without that.
pub(crate) fn provide_tls() {
    // Another part of the process may have done so.
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
}
