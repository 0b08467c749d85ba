use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State, rejection::BytesRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use hyper_util::rt::TokioTimer;
use tokio::net::TcpListener;
use tower_http::timeout::TimeoutLayer;

use crate::{
    Certificates, Error, Metrics, Result,
    review::{self, Answer},
    tls,
};

/// The API server takes no larger object itself.
const MAX_BODY: usize = 3 * 1024 * 1024;
/// Longer than the API server waits for us.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to send the head of a request, or to answer a ping.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// What requests under way are given once the server stops.
const GRACE: Duration = Duration::from_secs(10);

/// The webhooks: POST `/mutate` and POST `/validate`.
pub fn router(metrics: Metrics) -> Router {
    Router::new()
        .route("/mutate", post(mutate))
        .route("/validate", post(validate))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::REQUEST_TIMEOUT,
            REQUEST_TIMEOUT,
        ))
        .with_state(metrics)
}

type Body = Result<Bytes, BytesRejection>;

async fn mutate(State(metrics): State<Metrics>, body: Body) -> Response {
    respond(&metrics, "mutate", body, review::mutate)
}

async fn validate(State(metrics): State<Metrics>, body: Body) -> Response {
    respond(&metrics, "validate", body, review::validate)
}

fn respond(
    metrics: &Metrics,
    webhook: &'static str,
    body: Body,
    review: fn(&[u8]) -> Result<Answer>,
) -> Response {
    let answer = match body {
        Ok(body) => review(&body),
        Err(rejection) => {
            metrics.reviewed(webhook, "malformed");
            return rejection.into_response();
        }
    };
    match answer {
        Ok(Answer { allowed, review }) => {
            metrics.reviewed(webhook, if allowed { "allowed" } else { "denied" });
            Json(review).into_response()
        }
        Err(error) => {
            metrics.reviewed(webhook, "malformed");
            tracing::warn!(
                webhook,
                error = &error as &dyn std::error::Error,
                "Refused an admission review"
            );
            let status = match error {
                Error::Malformed(_) => StatusCode::BAD_REQUEST,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, error.to_string()).into_response()
        }
    }
}

/// Serves `router` over TLS 1.2 and 1.3 with whatever certificate `certificates` has, until `shutdown` is over and then until
/// the requests under way are answered.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    certificates: Arc<Certificates>,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let config = tls::server_config(certificates)?;
    let listener = listener.into_std().map_err(Error::Serve)?;
    let handle = Handle::new();
    let mut server =
        axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(Arc::new(config)))
            .map_err(Error::Serve)?
            .handle(handle.clone());
    // Without timers hyper waits for ever for what a client does not send.
    server
        .http_builder()
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(PEER_TIMEOUT);
    server
        .http_builder()
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PEER_TIMEOUT);

    let serving = server.serve(router.into_make_service());
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => return ended.map_err(Error::Serve),
        () = shutdown => handle.graceful_shutdown(Some(GRACE)),
    }
    serving.await.map_err(Error::Serve)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;
