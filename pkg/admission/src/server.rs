//! The webhooks' routes and limits.

mod connections;
mod memory;
mod peers;

use std::time::{Duration, Instant};

use axum::{
    BoxError, Router,
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use http_body_util::{LengthLimitError, Limited};
use tokio::time::timeout;

use crate::{
    Access, Error, Metrics, Result,
    metrics::Outcome,
    review::{self, Answer, Judgement},
};
use memory::{Memory, Reserved};

pub use connections::{Limits, serve};

/// Holds an object and the one that it replaces, of 1.5 MiB each, which is what the API server can store.
const MAX_BODY: usize = 4 << 20;
/// How long a body may take; the API server waits 10 s for the answer.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone)]
struct Webhooks {
    access: Access,
    metrics: Metrics,
    memory: Memory,
}

/// The webhooks: POST `/mutate` and POST `/validate`.
pub fn router(access: Access, metrics: Metrics) -> Router {
    Router::new()
        .route("/mutate", post(mutate))
        .route("/validate", post(validate))
        .with_state(Webhooks {
            access,
            metrics,
            memory: Memory::default(),
        })
}

async fn mutate(State(webhooks): State<Webhooks>, request: Request) -> Response {
    let began = Instant::now();
    let answer = webhooks.judge(request, review::mutate).await;
    webhooks.respond("mutate", began, answer)
}

async fn validate(State(webhooks): State<Webhooks>, request: Request) -> Response {
    let began = Instant::now();
    let judged = webhooks.judge(request, review::validate).await;
    let answer = match judged {
        Ok(Ok(Judgement::Claimed(claim))) => Ok(webhooks.access.decide(*claim).await),
        Ok(Ok(Judgement::Final(answer))) => Ok(Ok(answer)),
        Ok(Err(error)) => Ok(Err(error)),
        Err(refusal) => Err(refusal),
    };
    webhooks.respond("validate", began, answer)
}

/// Why a body was not read.
type Refusal = (StatusCode, &'static str);

impl Webhooks {
    /// What `judge` says of the body.
    async fn judge<T>(
        &self,
        request: Request,
        judge: fn(&[u8]) -> Result<T>,
    ) -> Result<Result<T>, Refusal> {
        let (body, _reserved) = self.read(request).await?;
        let _turn = self.memory.turn(body.len()).await;
        Ok(judge(&body))
    }

    /// The body, and the memory that was set aside for it.
    async fn read(&self, request: Request) -> Result<(Vec<u8>, Reserved), Refusal> {
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: usize| length > MAX_BODY) {
            return Err(TOO_LARGE);
        }
        let read = async {
            let mut reserved = self.memory.reserve();
            let mut body = Limited::new(request.into_body(), MAX_BODY);
            // Into one piece at once: all frames together, with the room that each leaves in its buffer, are some times as large.
            let mut whole = Vec::with_capacity(length.unwrap_or_default());
            while let Some(data) = reserved.next(&mut body).await {
                whole.extend_from_slice(&data?);
            }
            Ok((whole, reserved))
        };
        match timeout(BODY_TIMEOUT, read).await {
            Ok(Ok(read)) => Ok(read),
            Ok(Err::<_, BoxError>(error)) if error.is::<LengthLimitError>() => Err(TOO_LARGE),
            Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the body broke off")),
            Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body took too long")),
        }
    }

    fn respond(
        &self,
        webhook: &'static str,
        began: Instant,
        answer: Result<Result<Answer>, Refusal>,
    ) -> Response {
        let outcome = match &answer {
            Ok(Ok(answer)) if answer.allowed => Outcome::Allowed,
            Ok(Ok(answer)) if answer.code >= 500 => Outcome::Undecided,
            Ok(Ok(_)) => Outcome::Denied,
            Ok(Err(_)) | Err(_) => Outcome::Malformed,
        };
        self.metrics.reviewed(webhook, outcome, began.elapsed());
        match answer {
            Ok(Ok(Answer { body, .. })) => {
                ([(header::CONTENT_TYPE, "application/json")], body).into_response()
            }
            Ok(Err(error)) => {
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
            Err(refusal) => {
                tracing::warn!(webhook, error = refusal.1, "Refused an admission review");
                refusal.into_response()
            }
        }
    }
}

const TOO_LARGE: Refusal = (
    StatusCode::PAYLOAD_TOO_LARGE,
    "a review may be 4 MiB large, which holds two of the largest objects that can be stored",
);

#[cfg(test)]
mod peer_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;
