use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use tracing::warn;

use crate::wire::Failure;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a request was not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The request itself is at fault.
    #[error("{0}")]
    Invalid(String),
    /// Nobody knows who calls.
    #[error("{0}")]
    Unauthenticated(String),
    /// The requester may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// There is no such coordinator, replica or path.
    #[error("{0}")]
    NotFound(String),
    /// The job's state does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// The body is too large.
    #[error("the body is larger than {0} bytes")]
    BodyTooLarge(usize),
    /// Too much is asked at a time.
    #[error("{0}; try again")]
    TooManyRequests(String),
    /// A fault of ours.
    #[error("{0}; this is a fault of the endpoint, whose log tells more")]
    Internal(&'static str),
    /// The path does not know this method.
    #[error("this path does not know this method")]
    MethodNotSupported,
    /// A fault that will pass.
    #[error("{0}; try again")]
    Unavailable(String),
    /// The API server did not answer in time.
    #[error("the API server did not answer in time when asked to {0}; try again")]
    Timeout(&'static str),
    /// The API server refused, or could not be reached.
    #[error("{}", api_error_message(.doing, .source))]
    Api {
        /// What it was asked to do.
        doing: &'static str,
        /// What came of it.
        #[source]
        source: Box<kube::Error>,
    },
}

/// Marks the answers that tell of a fault that will pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retryable;

/// Seconds after which a fault that will pass is worth another try.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("2");

fn api_error_message(doing: &str, source: &kube::Error) -> String {
    match source {
        kube::Error::Api(status) if refused(status.code) => {
            format!("the API server refused to {doing}: {}", status.message)
        }
        kube::Error::Api(status) => {
            format!(
                "the API server could not {doing}: {}; try again",
                status.message
            )
        }
        kube::Error::SerdeError(_) => {
            format!("the API server was asked to {doing}, and its answer cannot be read")
        }
        _ => format!("the API server could not be asked to {doing}; try again"),
    }
}

/// Whether the API server will refuse again, because of what it was sent.
fn refused(code: u16) -> bool {
    matches!(code, 400 | 404 | 413 | 422)
}

impl Error {
    /// Whether the object was changed by another since it was read.
    pub(crate) fn is_conflict_response(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(&**source, kube::Error::Api(status) if status.is_conflict()))
    }

    /// Whether trying again can help.
    pub(crate) fn is_retryable(&self) -> bool {
        matches!(
            self.status(),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        )
    }

    /// The HTTP status; 503 for what will pass.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooManyRequests(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::MethodNotSupported => StatusCode::NOT_IMPLEMENTED,
            Self::Unavailable(_) | Self::Timeout(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) if status.is_not_found() => StatusCode::NOT_FOUND,
                kube::Error::Api(status) if refused(status.code) => StatusCode::BAD_REQUEST,
                kube::Error::SerdeError(_) => StatusCode::INTERNAL_SERVER_ERROR,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            },
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        if let Self::Api { .. } | Self::Timeout(_) = self {
            warn!(
                error = &self as &dyn std::error::Error,
                "A request failed by the API server"
            );
        }
        let status = self.status();
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
