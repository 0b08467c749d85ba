//! The routes of the webhooks and the limits of their requests.

mod body_memory;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::HttpBody,
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use di_serve::{BodyError, Certificates, Limits, Server, read_body, tls_config};
use tokio::net::TcpListener;

use crate::{
    Access, Error, Metrics, Result,
    metrics::Outcome,
    review::{self, ReviewOutcome, ReviewResponse},
};
use body_memory::{BodyMemory, MAX_BODY_BYTES, MemoryReservation};

/// Time limit for receiving a body. The API server waits 10 s for the response.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone)]
struct Webhooks {
    access: Access,
    metrics: Metrics,
    memory: BodyMemory,
}

/// The webhooks: POST `/mutate` and POST `/validate`.
pub fn router(access: Access, metrics: Metrics) -> Router {
    Router::new()
        .route("/mutate", post(handle_mutate))
        .route("/validate", post(handle_validate))
        .with_state(Webhooks {
            access,
            metrics,
            memory: BodyMemory::default(),
        })
}

/// Serves `router` over TLS with the current certificate of `certificates`.
///
/// After `shutdown` completes, it waits for the running requests and returns.
///
/// # Errors
/// When TLS cannot be configured.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    certificates: Arc<Certificates>,
    limits: Limits,
    metrics: Metrics,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let server = Server {
        name: "webhooks",
        limits,
        tls: Some(tls_config(certificates).map_err(Error::Tls)?),
        metrics: metrics.connections,
    };
    server.serve(listener, router, shutdown).await;
    Ok(())
}

async fn handle_mutate(State(webhooks): State<Webhooks>, request: Request) -> Response {
    let received_at = Instant::now();
    let response = webhooks.handle_body(request, review::mutate).await;
    webhooks.build_response("mutate", received_at, response)
}

async fn handle_validate(State(webhooks): State<Webhooks>, request: Request) -> Response {
    let received_at = Instant::now();
    let outcome = webhooks.handle_body(request, review::validate).await;
    let response = match outcome {
        Ok(Ok(ReviewOutcome::NeedsAuthorization(check))) => {
            Ok(webhooks.access.authorize_request(*check).await)
        }
        Ok(Ok(ReviewOutcome::Final(response))) => Ok(Ok(response)),
        Ok(Err(error)) => Ok(Err(error)),
        Err(rejection) => Err(rejection),
    };
    webhooks.build_response("validate", received_at, response)
}

/// Error response when the body could not be read: status and message.
type Rejection = (StatusCode, &'static str);

impl Webhooks {
    /// Reads the body and passes it to `handler`.
    async fn handle_body<T>(
        &self,
        request: Request,
        handler: fn(&[u8]) -> Result<T>,
    ) -> Result<Result<T>, Rejection> {
        let (body, _reservation) = self.read_body(request).await?;
        let _permit = self.memory.decode_permit(body.len()).await;
        Ok(handler(&body))
    }

    /// Reads the body. Returns it with the reservation of its memory.
    async fn read_body(&self, request: Request) -> Result<(Vec<u8>, MemoryReservation), Rejection> {
        let mut reservation = self.memory.new_reservation();
        let read = read_body(
            request.into_body(),
            MAX_BODY_BYTES,
            BODY_TIMEOUT,
            |mut body| async move {
                // Copy the frames into one buffer at once: unused space in the buffers of the frames
                // would multiply the memory.
                let mut bytes = Vec::with_capacity(usize::try_from(body.size_hint().lower())?);
                while let Some(data) = reservation.next_frame(&mut body).await {
                    bytes.extend_from_slice(&data?);
                }
                Ok((bytes, reservation))
            },
        );
        read.await.map_err(|error| match error {
            BodyError::TooLarge(_) => TOO_LARGE,
            BodyError::Incomplete => (StatusCode::BAD_REQUEST, "the request body is incomplete"),
            BodyError::Timeout => (
                StatusCode::REQUEST_TIMEOUT,
                "timed out waiting for the request body",
            ),
        })
    }

    fn build_response(
        &self,
        webhook: &'static str,
        received_at: Instant,
        result: Result<Result<ReviewResponse>, Rejection>,
    ) -> Response {
        let outcome = match &result {
            Ok(Ok(response)) if response.allowed => Outcome::Allowed,
            Ok(Ok(response)) if response.code >= 500 => Outcome::AuthorizationUnknown,
            Ok(Ok(_)) => Outcome::Denied,
            Ok(Err(_)) | Err(_) => Outcome::Malformed,
        };
        self.metrics
            .record_review(webhook, outcome, received_at.elapsed());
        match result {
            Ok(Ok(ReviewResponse { body, .. })) => {
                ([(header::CONTENT_TYPE, "application/json")], body).into_response()
            }
            Ok(Err(error)) => {
                tracing::warn!(
                    webhook,
                    error = &error as &dyn std::error::Error,
                    "Rejected an admission review"
                );
                let status = match error {
                    Error::Malformed(_) => StatusCode::BAD_REQUEST,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                };
                (status, error.to_string()).into_response()
            }
            Err(rejection) => {
                tracing::warn!(webhook, error = rejection.1, "Rejected an admission review");
                rejection.into_response()
            }
        }
    }
}

const TOO_LARGE: Rejection = (
    StatusCode::PAYLOAD_TOO_LARGE,
    "the AdmissionReview is larger than 4 MiB, the limit for two objects of the maximum size",
);

#[cfg(test)]
mod peer_tests;
#[cfg(test)]
mod tests;
