use axum::http::StatusCode;
use di_cache::CallError;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// An error response to a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The requester is unknown.
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
    /// Too many requests at the same time.
    #[error("{0}; try again")]
    TooManyRequests(String),
    /// A bug of the endpoint.
    #[error("{0}: internal error, see the log of the replica endpoint")]
    Internal(&'static str),
    /// The path does not support the method.
    #[error("HTTP method not supported for this path")]
    MethodNotSupported,
    /// A transient error.
    #[error("{0}; try again")]
    Unavailable(String),
    /// A call to the API server failed or timed out.
    #[error("{}", call_error_message(.0))]
    Call(#[from] CallError),
}

fn call_error_message(error: &CallError) -> String {
    let (doing, source) = match error {
        CallError::Api { operation, source } => (operation, &**source),
        CallError::Timeout { operation, .. } => {
            return format!(
                "cannot {operation}: the API server did not respond in time; try again"
            );
        }
    };
    match source {
        kube::Error::Api(status) if is_rejected(status.code) => {
            format!(
                "cannot {doing}: the API server rejected it: {}",
                status.message
            )
        }
        kube::Error::Api(status) => {
            format!(
                "cannot {doing}: the API server returned: {}; try again",
                status.message
            )
        }
        kube::Error::SerdeError(_) => {
            format!("cannot {doing}: the response of the API server cannot be decoded")
        }
        _ => format!("cannot {doing}: the API server cannot be reached; try again"),
    }
}

/// Whether the API server rejects the same request again.
fn is_rejected(code: u16) -> bool {
    matches!(code, 400 | 404 | 413 | 422)
}

impl Error {
    /// Whether another client has changed the object since it was read.
    pub(crate) fn is_conflict_response(&self) -> bool {
        matches!(self, Self::Call(CallError::Api { source, .. }) if matches!(&**source, kube::Error::Api(status) if status.is_conflict()))
    }

    /// Whether a retry can succeed.
    pub(crate) fn is_retryable(&self) -> bool {
        matches!(
            self.status_code(),
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        )
    }

    /// The HTTP status; 503 for transient errors.
    pub(crate) fn status_code(&self) -> StatusCode {
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
            Self::Unavailable(_) | Self::Call(CallError::Timeout { .. }) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Call(CallError::Api { source, .. }) => match &**source {
                kube::Error::Api(status) if status.is_not_found() => StatusCode::NOT_FOUND,
                kube::Error::Api(status) if is_rejected(status.code) => StatusCode::BAD_REQUEST,
                kube::Error::SerdeError(_) => StatusCode::INTERNAL_SERVER_ERROR,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            },
        }
    }
}
