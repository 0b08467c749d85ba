use http::StatusCode;
use kube::core::Status;
use serde::Deserialize;
use serde_json::Value;

use super::{LifecycleStatus, CallResult};
use crate::{Error, Result};

/// What stands around every answer of a handle.
#[derive(Deserialize)]
struct Envelope {
    success: bool,
    #[serde(default)]
    message: String,
    #[serde(default)]
    data: Value,
}

/// Makes sense of an answer, which may be the worker's, the API server's, or that of a worker that knows nothing of handles.
pub(super) fn judge(status: StatusCode, body: &[u8], port: u16) -> Result<CallResult> {
    if let Ok(Envelope {
        success,
        message,
        data,
    }) = serde_json::from_slice(body)
    {
        match serde_json::from_value(data) {
            Ok(life) if success => return Ok(CallResult::LifecycleStatus(life)),
            // What it refuses, it says with a report; any other server of this form may have no such path.
            Ok(LifecycleStatus { .. }) => return Ok(CallResult::Silent(format!("refused: {message}"))),
            Err(_) => return Ok(no_handles(status)),
        }
    }
    let said: Option<Status> = serde_json::from_slice(body)
        .ok()
        .filter(|said: &Status| said.code == status.as_u16());
    let text = String::from_utf8_lossy(body);
    let line = text.lines().next().unwrap_or_default().trim();
    Ok(match (status, said) {
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, Some(said)) => {
            return Err(Error::Server(said.boxed()));
        }
        (StatusCode::NOT_FOUND, Some(said)) if said.reason == "NotFound" => {
            CallResult::Silent("is gone".to_owned())
        }
        (_, Some(said)) => {
            let why = format!("does not answer on port {port}: {}", said.message);
            CallResult::Unreached(why)
        }
        // So older API servers tell of a pod that cannot be reached.
        (StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE, None)
            if line.to_lowercase().contains("trying to reach") =>
        {
            CallResult::Unreached(format!("does not answer on port {port}: {line}"))
        }
        (_, None) => no_handles(status),
    })
}

fn no_handles(status: StatusCode) -> CallResult {
    CallResult::Silent(format!("has no life-cycle handles (it answers {status})"))
}
