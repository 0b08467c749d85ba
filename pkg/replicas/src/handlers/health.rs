use axum::{
    extract::State as Extract,
    http::header,
    response::{IntoResponse, Response},
};
use prometheus_client::encoding::text::encode;
use serde_json::Value;

use super::success;
use crate::{
    State,
    error::{Error, Result},
};

/// Whether the process serves at all.
pub(crate) async fn healthz() -> Result<Response> {
    success("alive", Value::Null)
}

/// Whether the caches are complete.
pub(crate) async fn readyz(Extract(state): Extract<State>) -> Result<Response> {
    if state.synced() {
        return success("ready", Value::Null);
    }
    Err(Error::Passing(
        "the jobs and pods of the cluster are not all known yet".to_owned(),
    ))
}

pub(crate) async fn metrics(Extract(state): Extract<State>) -> Result<Response> {
    let mut text = String::new();
    encode(&mut text, &state.registry)
        .map_err(|_| Error::Passing("the metrics cannot be written".to_owned()))?;
    let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, format)], text).into_response())
}
