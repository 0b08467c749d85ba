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
use di_plan::GangScheduler;
use di_serve::{BodyError, Certificates, Limits, Server, read_body, tls_config};
use tokio::net::TcpListener;

use self::body_memory::{BodyMemory, MAX_BODY_BYTES, MemoryReservation};
use crate::{
    access::Access,
    dry_run::DryRun,
    error::{Error, Result},
    metrics::{Metrics, Outcome},
    review::{self, Authorization, DryRunReport, ReviewOutcome, ReviewResponse},
};

/// Time limit for receiving a body. The API server waits 10 s for the response.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for all requests to the API server about one review. With the time for the body, the
/// webhook responds within the 10 s that the API server waits, and the author sees the reason.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone)]
struct Webhooks {
    access: Access,
    dry_run: Option<DryRun>,
    gang: Option<GangScheduler>,
    metrics: Metrics,
    memory: BodyMemory,
}

/// The webhooks: POST `/mutate` and POST `/validate`. Without `dry_run`, the API server does not
/// validate the pods. `gang` is the scheduler that places gangs.
pub fn router(
    access: Access,
    dry_run: Option<DryRun>,
    gang: Option<GangScheduler>,
    metrics: Metrics,
) -> Router {
    Router::new()
        .route("/mutate", post(handle_mutate))
        .route("/validate", post(handle_validate))
        .with_state(Webhooks {
            access,
            dry_run,
            gang,
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
    let mutate = |body: &[u8], _: Option<&GangScheduler>| review::mutate(body);
    let result = webhooks.review(request, mutate).await;
    webhooks.build_response("mutate", received_at, result)
}

async fn handle_validate(State(webhooks): State<Webhooks>, request: Request) -> Response {
    let received_at = Instant::now();
    let result = match webhooks.review(request, review::validate).await {
        Ok(ReviewOutcome::NeedsAuthorization(authorization)) => {
            webhooks.query_api_server(*authorization).await
        }
        Ok(ReviewOutcome::Final(response)) => Ok(response),
        Err(error) => Err(error),
    };
    webhooks.build_response("validate", received_at, result)
}

impl Webhooks {
    /// Reads the body and reviews it. Releases its memory before it returns.
    async fn review<T>(
        &self,
        request: Request,
        review: fn(&[u8], Option<&GangScheduler>) -> Result<T>,
    ) -> Result<T> {
        let (body, _reservation) = self.read_body(request).await?;
        let _permit = self.memory.decode_permit(body.len()).await;
        review(&body, self.gang.as_ref())
    }

    /// Authorizes the author, and then validates the pods. See docs/decisions/0010 and 0030.
    async fn query_api_server(&self, mut authorization: Authorization) -> Result<ReviewResponse> {
        let deadline = tokio::time::Instant::now() + QUERY_TIMEOUT;
        // Only the encoded pods stay in memory while the API server responds.
        let object = authorization.take_object();
        let dry_run = match (&self.dry_run, object) {
            (Some(dry_run), Some(object)) => {
                let requests = dry_run.build_requests(object, authorization.namespace())?;
                Some((dry_run, requests))
            }
            _ => None,
        };
        let denial = self
            .access
            .find_denial(&authorization, QUERY_TIMEOUT)
            .await?;
        if let Some(denial) = denial {
            return Ok(denial);
        }
        let unknown = authorization.take_unknown_pod_fields();
        let report = match dry_run {
            Some((dry_run, requests)) => {
                let report = dry_run.run(requests, deadline).await;
                dry_run.add_unknown_fields(report, unknown, deadline).await
            }
            None => DryRunReport {
                faults: unknown,
                ..DryRunReport::default()
            },
        };
        authorization.dry_run_response(report)
    }

    /// Reads the body. Returns it with the reservation of its memory.
    async fn read_body(&self, request: Request) -> Result<(Vec<u8>, MemoryReservation)> {
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
            BodyError::TooLarge(_) => Error::BodyTooLarge,
            BodyError::Incomplete => Error::BodyIncomplete,
            BodyError::Timeout => Error::BodyTimeout,
        })
    }

    fn build_response(
        &self,
        webhook: &'static str,
        received_at: Instant,
        result: Result<ReviewResponse>,
    ) -> Response {
        let outcome = match &result {
            Ok(response) if response.allowed => Outcome::Allowed,
            Ok(response) if response.code >= 500 => Outcome::AuthorizationUnknown,
            Ok(_) => Outcome::Denied,
            Err(_) => Outcome::Malformed,
        };
        self.metrics
            .record_review(webhook, outcome, received_at.elapsed());
        match result {
            Ok(ReviewResponse { body, .. }) => {
                ([(header::CONTENT_TYPE, "application/json")], body).into_response()
            }
            Err(error) => {
                tracing::warn!(
                    webhook,
                    error = &error as &dyn std::error::Error,
                    "Rejected an admission review"
                );
                (status_code(&error), error.to_string()).into_response()
            }
        }
    }
}

fn status_code(error: &Error) -> StatusCode {
    match error {
        Error::Malformed(_) | Error::BodyIncomplete => StatusCode::BAD_REQUEST,
        Error::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Error::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod peer_tests;
#[cfg(test)]
mod tests;
