use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::SYSTEM;

/// The replica endpoint, reached through the API server.
pub struct Endpoint {
    client: Client,
    token: Option<String>,
}

/// A response of the endpoint.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// The JSON envelope.
    pub body: Value,
}

impl Endpoint {
    /// Creates a client with or without a bearer token.
    pub fn new(client: Client, token: Option<String>) -> Self {
        Self { client, token }
    }

    /// Sends one request to one of the endpoint's pods.
    ///
    /// # Panics
    /// If no pod responds with HTTP.
    pub async fn call(&self, method: &str, path: &str, body: &Value) -> Reply {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), SYSTEM);
        let selector = ListParams::default().labels("app.kubernetes.io/name=di-orchestrator");
        let all = pods.list(&selector).await.expect("the orchestrator's pods");
        let ready = all
            .iter()
            .find(|pod| is_ready(pod))
            .expect("a ready pod of the orchestrator");
        let header = self
            .token
            .as_ref()
            .map(|token| format!("Authorization: Bearer {token}"));
        let answer = send_http(&pods, &ready.name_any(), 8080, method, path, header, body).await;
        answer.expect("an answer")
    }
}

/// Sends one request to a port of a pod. Returns `None` if the port does not respond, for example
/// while the pod starts.
///
/// # Panics
/// If the response is not HTTP with JSON.
pub async fn send_http(
    pods: &Api<Pod>,
    pod: &str,
    port: u16,
    method: &str,
    path: &str,
    header: Option<String>,
    body: &Value,
) -> Option<Reply> {
    let mut forward = pods.portforward(pod, &[port]).await.ok()?;
    let mut stream = forward.take_stream(port)?;
    let body = body.to_string();
    let header = header.map(|header| header + "\r\n").unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {pod}\r\n{header}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Some(Reply {
        status: status.expect("a status"),
        body: serde_json::from_str(body).expect("JSON"),
    })
}

/// Whether a pod is ready and not terminating.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .filter_map(|status| status.conditions.as_ref())
        .flatten();
    pod.metadata.deletion_timestamp.is_none()
        && conditions
            .into_iter()
            .any(|c| c.type_ == "Ready" && c.status == "True")
}
