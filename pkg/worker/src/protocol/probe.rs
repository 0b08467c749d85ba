//! `GET`s URLs from inside a pod, whose image has neither shell nor curl.

use std::time::Duration;

use crate::{Error, Result, protocol::http};

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The response of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// The body, as text.
    pub body: String,
}

impl Answer {
    /// Whether the status is 2xx.
    pub const fn is_success(&self) -> bool {
        self.status >= 200 && self.status < 300
    }
}

/// Calls an `http://` URL.
pub async fn probe_url(url: &str) -> Result<Answer> {
    let unreachable = |source| Error::Unreachable {
        url: url.to_owned(),
        source,
    };
    let response = http::new_client()?
        .get(url)
        .timeout(TIMEOUT)
        .send()
        .await
        .map_err(unreachable)?;
    let status = response.status().as_u16();
    Ok(Answer {
        status,
        body: response.text().await.map_err(unreachable)?,
    })
}
