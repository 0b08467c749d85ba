//! Requests of a plain client, encoded before they are measured.

use std::sync::Arc;

use anyhow::{Result, ensure};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// A call that was made ready.
#[derive(Clone, Debug)]
pub struct Call {
    /// Method.
    pub method: http::Method,
    /// Path and query.
    pub path: String,
    /// Type of the body.
    pub content_type: &'static str,
    /// Body.
    pub body: Vec<u8>,
    /// Whether an object that is not there any more is as good.
    pub may_be_gone: bool,
}

impl Call {
    /// Creates an object.
    pub fn create(path: &str, object: &impl serde::Serialize) -> Result<Self> {
        Ok(Self {
            method: http::Method::POST,
            path: path.to_owned(),
            content_type: "application/json",
            body: serde_json::to_vec(object)?,
            may_be_gone: false,
        })
    }

    /// Deletes an object.
    pub fn delete(path: &str, name: &str) -> Self {
        Self {
            method: http::Method::DELETE,
            path: format!("{path}/{name}"),
            content_type: "application/json",
            body: Vec::new(),
            may_be_gone: false,
        }
    }

    /// The same, without any grace, of one that may be gone already.
    pub fn delete_now(path: &str, name: &str) -> Self {
        Self {
            may_be_gone: true,
            ..Self::delete(path, &format!("{name}?gracePeriodSeconds=0"))
        }
    }

    /// Merges into the status of an object.
    pub fn status(path: &str, name: &str, status: &Value) -> Result<Self> {
        Ok(Self {
            method: http::Method::PATCH,
            path: format!("{path}/{name}/status"),
            content_type: "application/merge-patch+json",
            body: serde_json::to_vec(&json!({ "status": status }))?,
            may_be_gone: false,
        })
    }

    /// Makes the call, and takes the whole answer, but does not look into it.
    pub async fn make(self, client: &Client) -> Result<()> {
        let Self {
            method,
            path,
            content_type,
            body,
            may_be_gone,
        } = self;
        let request = http::Request::builder().method(method).uri(&path);
        let request = request.header(http::header::CONTENT_TYPE, content_type);
        let answer = client.send(request.body(body.into())?).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        let gone = may_be_gone && status == http::StatusCode::NOT_FOUND;
        ensure!(
            status.is_success() || gone,
            "{path} was answered {status}: {}",
            String::from_utf8_lossy(&body)
        );
        Ok(())
    }
}

/// Makes calls with limited concurrency, one task per worker.
pub async fn make_all(client: &Client, calls: Vec<Call>, at_once: usize) -> Result<()> {
    let calls = Arc::new(std::sync::Mutex::new(calls.into_iter()));
    let mut workers = JoinSet::new();
    for _ in 0..at_once {
        let (calls, client) = (calls.clone(), client.clone());
        workers.spawn(async move {
            loop {
                let next = calls.lock().map_or(None, |mut calls| calls.next());
                let Some(call) = next else {
                    return anyhow::Ok(());
                };
                call.make(&client).await?;
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(())
}
