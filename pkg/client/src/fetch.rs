use std::{thread::sleep, time::Duration};

use ureq::{
    Agent,
    tls::{RootCerts, TlsConfig},
};

use crate::{Error, Result};

/// As kubectl: a server that is ill is asked so often.
const ATTEMPTS: u32 = 3;
/// No manifest is larger; the API server takes no object of more than 3 MiB.
const LARGEST: u64 = 64 << 20;

/// The text at an address.
pub(crate) fn fetch(url: &str) -> Result<String> {
    let failed = |message: String| Error::Manifest {
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
        let mut answer = agent
            .get(url)
            .call()
            .map_err(|error| failed(format!("unable to read URL: {error}")))?;
        let status = answer.status();
        if status.is_success() {
            let body = answer.body_mut().with_config().limit(LARGEST);
            return body
                .read_to_string()
                .map_err(|error| failed(format!("unable to read URL: {error}")));
        }
        if attempt == ATTEMPTS || !status.is_server_error() {
            return Err(failed(format!(
                "unable to read URL, server reported {status}"
            )));
        }
        attempt += 1;
        sleep(Duration::from_millis(500));
    }
}
