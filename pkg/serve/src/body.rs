use std::time::Duration;

use axum::{
    BoxError,
    body::{Body, HttpBody},
};
use http_body_util::{LengthLimitError, Limited};
use tokio::time::timeout;

/// A failure to read the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The body is too large.
    #[error("the request body is larger than {0} bytes")]
    TooLarge(usize),
    /// The client closed the connection, or sent a malformed body.
    #[error("the request body is incomplete")]
    Incomplete,
    /// The body did not arrive in time.
    #[error("timed out waiting for the request body")]
    Timeout,
}

/// Reads the body of a request with `read`, at most `max_bytes`, within `time_limit`.
///
/// A larger body is rejected without reading it if its size is known.
///
/// # Errors
/// When the body is too large, too slow or incomplete.
pub async fn read_body<T, F>(
    body: Body,
    max_bytes: usize,
    time_limit: Duration,
    read: impl FnOnce(Limited<Body>) -> F,
) -> Result<T, BodyError>
where
    F: Future<Output = Result<T, BoxError>>,
{
    let least_bytes = body.size_hint().lower();
    if usize::try_from(least_bytes).map_or(true, |least| least > max_bytes) {
        return Err(BodyError::TooLarge(max_bytes));
    }
    match timeout(time_limit, read(Limited::new(body, max_bytes))).await {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge(max_bytes)),
        Ok(Err(_)) => Err(BodyError::Incomplete),
        Err(_) => Err(BodyError::Timeout),
    }
}
