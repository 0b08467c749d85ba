use axum::{
    extract::State as Extract,
    http::header,
    response::{IntoResponse, Response},
};

use super::success_response;
use crate::{
    error::{Error, Result},
    state::State,
    wire::{Failure, Nothing, Success},
};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Reports that the process serves requests.
#[utoipa::path(get, path = "/healthz", responses((status = 200, description = "The process serves requests", body = Success<Nothing>)))]
pub(crate) async fn healthz() -> Result<Response> {
    success_response("alive", Nothing)
}

/// Reports whether the caches have been complete once.
#[utoipa::path(get, path = "/readyz", responses(
    (status = 200, description = "The caches are complete", body = Success<Nothing>),
    (status = 503, description = "The caches are not complete yet", body = Failure),
))]
pub(crate) async fn readyz(Extract(state): Extract<State>) -> Result<Response> {
    state.check_ready()?;
    success_response("ready", Nothing)
}

/// Returns the metrics as OpenMetrics.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, description = "Counters and histograms", body = String, content_type = "application/openmetrics-text"),
))]
pub(crate) async fn metrics(Extract(state): Extract<State>) -> Result<Response> {
    let text = state.metrics.text();
    let text = text.map_err(|_| Error::Internal("the metrics cannot be encoded"))?;
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}

/// Returns the OpenAPI document.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, description = "This document", body = Object)))]
pub(crate) async fn openapi(Extract(state): Extract<State>) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        state.openapi.get().cloned().unwrap_or_default(),
    )
        .into_response()
}
