use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use tracing::warn;

use super::envelope::Failure;
use crate::error::Error;

/// Marks responses with a retryable error. See docs/decisions/0007.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retryable;

/// Seconds until a retry is useful.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("2");

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        if let Self::Call(_) = self {
            warn!(
                error = &self as &dyn std::error::Error,
                "Request failed: API server error"
            );
        }
        let status = self.status_code();
        let mut response = (status, Json(Failure::new(&self.to_string()))).into_response();
        match status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                response
                    .headers_mut()
                    .insert(header::RETRY_AFTER, RETRY_AFTER);
                response.extensions_mut().insert(Retryable);
            }
            StatusCode::UNAUTHORIZED => {
                let scheme = HeaderValue::from_static("Bearer");
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, scheme);
            }
            _ => {}
        }
        response
    }
}
