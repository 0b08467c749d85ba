use std::collections::BTreeMap;

use http::StatusCode;
use kube::core::Status;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Error, Result};

/// The life-cycle status that a worker reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LifecycleStatus {
    /// State in one word.
    pub status: String,
    /// Whether the worker runs.
    #[serde(default)]
    pub running: bool,
    /// Whether the worker is exiting.
    #[serde(default)]
    pub exiting: bool,
    /// Steps that did work.
    #[serde(default)]
    pub polls: u64,
    /// Samples of all steps.
    #[serde(default)]
    pub samples: u64,
    /// Batches of all steps.
    #[serde(default)]
    pub batches: u64,
    /// The error that ended the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Further statistics.
    #[serde(default)]
    pub stats: BTreeMap<String, f64>,
}

/// The result of one call.
#[derive(Debug, PartialEq)]
pub(crate) enum CallResult {
    Status(LifecycleStatus),
    /// No call was made.
    NotCalled,
    /// No process listens on the port.
    Unreachable(String),
    NoReport(String),
}

/// The envelope of every response of a worker.
#[derive(Deserialize)]
struct Envelope {
    success: bool,
    #[serde(default)]
    message: String,
    #[serde(default)]
    data: Value,
}

/// Parses a response.
///
/// It may come from a worker, from the API server, or from a program without the life-cycle API.
pub(super) fn parse_response(status: StatusCode, body: &[u8], port: u16) -> Result<CallResult> {
    if let Ok(Envelope {
        success,
        message,
        data,
    }) = serde_json::from_slice(body)
    {
        match serde_json::from_value(data) {
            Ok(report) if success => return Ok(CallResult::Status(report)),
            // A worker rejects with a status report. Other servers with this envelope have no such
            // path.
            Ok(LifecycleStatus { .. }) => {
                return Ok(CallResult::NoReport(format!("refused: {message}")));
            }
            Err(_) => return Ok(no_lifecycle_api(status)),
        }
    }
    let server_status: Option<Status> = serde_json::from_slice(body)
        .ok()
        .filter(|parsed: &Status| parsed.code == status.as_u16());
    let text = String::from_utf8_lossy(body);
    let line = text.lines().next().unwrap_or_default().trim();
    Ok(match (status, server_status) {
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, Some(server_status)) => {
            return Err(Error::Server(server_status.boxed()));
        }
        (StatusCode::NOT_FOUND, Some(server_status)) if server_status.reason == "NotFound" => {
            CallResult::NoReport("was deleted".to_owned())
        }
        (_, Some(server_status)) => {
            let reason = format!("does not answer on port {port}: {}", server_status.message);
            CallResult::Unreachable(reason)
        }
        // Older API servers report an unreachable pod in plain text.
        (StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE, None)
            if line.to_lowercase().contains("trying to reach") =>
        {
            CallResult::Unreachable(format!("does not answer on port {port}: {line}"))
        }
        (_, None) => no_lifecycle_api(status),
    })
}

fn no_lifecycle_api(status: StatusCode) -> CallResult {
    CallResult::NoReport(format!(
        "does not serve the life-cycle API (HTTP status {status})"
    ))
}
