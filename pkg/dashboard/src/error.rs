use axum::{
    Json,
    extract::rejection::{PathRejection, QueryRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use di_serve::BodyError;
use serde_json::json;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// An error response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The path, the query or the body is invalid.
    #[error("{0}")]
    BadRequest(String),
    /// The cookie, the token or the header with the token is missing or wrong.
    #[error("open the address that kubectl di dashboard has printed")]
    Unauthorized,
    /// Another site may have sent the request by DNS rebinding.
    #[error("the header Host is not the address of the dashboard")]
    ForbiddenHost,
    /// Another site has sent the request.
    #[error("the request comes from another site")]
    ForbiddenOrigin,
    #[error("path not found")]
    NotFound,
    #[error("HTTP method not supported for this path")]
    MethodNotAllowed,
    /// The state of the job has changed.
    #[error("{0}")]
    Conflict(String),
    #[error("the content type must be application/json")]
    UnsupportedType,
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("too many open pages and logs; close some of them")]
    TooManyStreams,
    #[error("the cluster did not answer in time")]
    Timeout,
    #[error(transparent)]
    Cluster(#[from] di_client::Error),
}

impl From<PathRejection> for Error {
    fn from(rejection: PathRejection) -> Self {
        Self::BadRequest(rejection.body_text())
    }
}

impl From<QueryRejection> for Error {
    fn from(rejection: QueryRejection) -> Self {
        Self::BadRequest(rejection.body_text())
    }
}

impl Error {
    /// The HTTP status, and the code by which the page translates the error.
    pub(crate) fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::BadRequest(_) | Self::Body(BodyError::Incomplete) => {
                (StatusCode::BAD_REQUEST, "badRequest")
            }
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::ForbiddenHost => (StatusCode::FORBIDDEN, "forbiddenHost"),
            Self::ForbiddenOrigin => (StatusCode::FORBIDDEN, "forbiddenOrigin"),
            Self::NotFound => (StatusCode::NOT_FOUND, "notFound"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "methodNotAllowed"),
            Self::Conflict(_) => (StatusCode::CONFLICT, "conflict"),
            Self::UnsupportedType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupportedType"),
            Self::Body(BodyError::TooLarge(_)) => (StatusCode::PAYLOAD_TOO_LARGE, "tooLarge"),
            Self::TooManyStreams => (StatusCode::TOO_MANY_REQUESTS, "tooManyRequests"),
            Self::Body(BodyError::Timeout) => (StatusCode::REQUEST_TIMEOUT, "timeout"),
            Self::Timeout => (StatusCode::GATEWAY_TIMEOUT, "timeout"),
            Self::Cluster(error) => cluster_status_and_code(error),
        }
    }
}

fn cluster_status_and_code(error: &di_client::Error) -> (StatusCode, &'static str) {
    use di_client::Error::{
        Invalid, InvalidName, JobEnded, NeverReached, NoSuchResource, Refused, Server, Timeout,
    };
    match error {
        Server(status) => match status.code {
            // 401 would mean that the cookie is wrong.
            403 => (StatusCode::FORBIDDEN, "forbidden"),
            404 => (StatusCode::NOT_FOUND, "notFound"),
            409 => (StatusCode::CONFLICT, "conflict"),
            422 => (StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
            _ => (StatusCode::BAD_GATEWAY, "cluster"),
        },
        NoSuchResource { .. } => (StatusCode::NOT_FOUND, "notFound"),
        InvalidName(_) => (StatusCode::BAD_REQUEST, "badRequest"),
        Invalid { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "invalid"),
        Refused(_) | JobEnded(_) | NeverReached(_) => (StatusCode::CONFLICT, "conflict"),
        Timeout(_) => (StatusCode::GATEWAY_TIMEOUT, "timeout"),
        _ => (StatusCode::BAD_GATEWAY, "cluster"),
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (status, code) = self.status_and_code();
        let error = json!({"code": code, "message": self.to_string()});
        (status, Json(json!({"error": error}))).into_response()
    }
}
