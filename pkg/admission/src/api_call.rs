use std::time::Duration;

use tokio::time::timeout;

use crate::{Error, Result};

/// Field manager of the webhooks' writes.
pub(crate) const FIELD_MANAGER: &str = "di-webhook";
/// Time limit of a call to the API server.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs one call to the API server with a timeout, because the retries of the client can take
/// minutes.
pub(crate) async fn call_with_timeout<T>(
    action: &'static str,
    object: impl Into<String>,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T> {
    match timeout(CALL_TIMEOUT, call).await {
        Ok(result) => result.map_err(|source| Error::Api {
            action,
            object: object.into(),
            source: Box::new(source),
        }),
        Err(_) => Err(Error::Timeout {
            action,
            object: object.into(),
        }),
    }
}
