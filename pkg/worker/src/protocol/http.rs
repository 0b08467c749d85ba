//! The HTTP client.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, dns::Resolve};

use crate::{Error, Result};

/// Connect timeout, including the name lookup.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A client with the resolver of the system.
pub fn new_client() -> Result<Client> {
    client_builder().build().map_err(Error::HttpClient)
}

/// A client with another resolver.
pub fn client_with(resolver: Arc<dyn Resolve>) -> Result<Client> {
    client_builder()
        .dns_resolver(resolver)
        .build()
        .map_err(Error::HttpClient)
}

fn client_builder() -> reqwest::ClientBuilder {
    // All called servers are inside the cluster: no proxy, no redirects.
    Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
}
