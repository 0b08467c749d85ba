use std::{thread::sleep, time::Duration};

use ureq::{
    Agent,
    tls::{RootCerts, TlsConfig},
};

use crate::{Error, Result};

/// Attempts for a server error, as in kubectl.
const MAX_ATTEMPTS: u32 = 3;
/// Maximum size of a manifest in bytes. The API server accepts objects of at most 3 MiB.
const MAX_BYTES: u64 = 64 << 20;

/// Downloads the text of a URL.
pub(crate) fn download_text(url: &str) -> Result<String> {
    let download_error = |message: String| Error::Manifest {
        origin: url.to_owned(),
        message,
    };
    let agent: Agent = Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(Some(Duration::from_secs(30)))
        .user_agent(concat!("kubectl-di/", env!("CARGO_PKG_VERSION")))
        .tls_config(
            TlsConfig::builder()
                .root_certs(RootCerts::PlatformVerifier)
                .build(),
        )
        .build()
        .into();
    let mut attempt = 1;
    loop {
        let mut response = agent
            .get(url)
            .call()
            .map_err(|error| download_error(format!("unable to read URL: {error}")))?;
        let status = response.status();
        if status.is_success() {
            let body = response.body_mut().with_config().limit(MAX_BYTES);
            return body
                .read_to_string()
                .map_err(|error| download_error(format!("unable to read URL: {error}")));
        }
        if attempt == MAX_ATTEMPTS || !status.is_server_error() {
            return Err(download_error(format!(
                "unable to read URL, server reported {status}"
            )));
        }
        attempt += 1;
        sleep(Duration::from_millis(500));
    }
}
