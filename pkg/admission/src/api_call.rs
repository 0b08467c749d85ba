use std::time::Duration;

use tokio::time::timeout;

use crate::{Error, Result};

/// Who we are in the managed fields of what we write.
pub(crate) const FIELD_MANAGER: &str = "di-webhook";
/// Longer than the API server takes for anything that we ask of it.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs one call to the API server with a deadline, because the client's own retries may take minutes.
pub(crate) async fn call<T>(
    action: &'static str,
    object: impl Into<String>,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T> {
    match timeout(CALL_TIMEOUT, call).await {
        Ok(done) => done.map_err(|source| Error::Api {
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
