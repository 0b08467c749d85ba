use std::time::Duration;

use tokio::time::timeout;

/// A failed call to the API server.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The API server rejected the call, or the connection failed.
    #[error("cannot {operation}")]
    Api {
        /// Verb and object of the call.
        operation: String,
        /// Error of the server or of the connection.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not respond in time.
    #[error("cannot {operation}: no response from the API server within {seconds} s")]
    Timeout {
        /// Verb and object of the call.
        operation: String,
        /// The timeout in seconds.
        seconds: u64,
    },
}

/// Waits for a call to the API server, at most for `limit`. `operation` describes it in errors.
///
/// Without a limit, a lost response would block the caller, and retries of the client can take
/// minutes.
///
/// # Errors
/// When the call fails or gets no response in time.
pub async fn call_with_timeout<T>(
    limit: Duration,
    operation: impl FnOnce() -> String,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    match timeout(limit, call).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(source)) => Err(CallError::Api {
            operation: operation(),
            source: Box::new(source),
        }),
        Err(_) => Err(CallError::Timeout {
            operation: operation(),
            seconds: limit.as_secs(),
        }),
    }
}
