//! The client of the replica endpoint.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    Error, Result, chain,
    protocol::{
        env::Environment,
        wire::{Envelope, Replicas, Role},
    },
};

/// The endpoint may wait for the scheduler before it answers a request for replicas.
const ADD_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of all other requests.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay between two attempts.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The replica endpoint of one coordinator.
#[derive(Clone, Debug)]
pub struct Endpoint {
    client: Client,
    url: String,
    namespace: String,
    coordinator: String,
}

impl Endpoint {
    /// A client of the endpoint in the environment.
    pub fn new(client: Client, environment: &Environment) -> Self {
        Self {
            client,
            url: format!(
                "http://{}{}/replicas",
                environment.server, environment.api_version
            ),
            namespace: environment.namespace.clone(),
            coordinator: environment.pod.clone(),
        }
    }

    /// The URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Requests replicas until they are granted, for at most `timeout`. The idempotency key makes a
    /// repetition safe.
    pub async fn acquire_replicas(
        &self,
        (collectors, learners): (u32, u32),
        key: &str,
        timeout: Duration,
    ) -> Result<Replicas> {
        let deadline = Instant::now() + timeout;
        let body = json!({
            "namespace": self.namespace,
            "coordinator": self.coordinator,
            "collectors": {"replicas": collectors},
            "learners": {"replicas": learners},
        });
        loop {
            let request = self.client.post(&self.url).timeout(ADD_TIMEOUT);
            let request = request.header("Idempotency-Key", key).json(&body);
            match self.send_request(request).await {
                Err(error) if error.is_transient() && Instant::now() < deadline => {
                    tracing::warn!("request for replicas failed, retrying: {}", chain(&error));
                }
                answer => return answer,
            }
            sleep(RETRY_DELAY).await;
        }
    }

    /// Lists the replicas of the coordinator.
    pub async fn list_replicas(&self) -> Result<Replicas> {
        self.list_for("coordinator").await
    }

    /// Lists the ranks of the aggregator, in order.
    pub async fn list_ranks(&self) -> Result<Vec<String>> {
        Ok(self.list_for("aggregator").await?.learners)
    }

    async fn list_for(&self, role: &str) -> Result<Replicas> {
        let query = [("namespace", &self.namespace), (role, &self.coordinator)];
        // The values are DNS names and need no escaping; reqwest's query support is a feature.
        let query = query.map(|(key, value)| format!("{key}={value}")).join("&");
        self.send_request(
            self.client
                .get(format!("{}?{query}", self.url))
                .timeout(READ_TIMEOUT),
        )
        .await
    }

    /// Reports replicas as failed so that they are replaced.
    pub async fn report_failed(&self, lost: &[(Role, String)]) -> Result<Replicas> {
        let names = |role| {
            lost.iter()
                .filter(|(of, _)| *of == role)
                .map(|(_, pod)| pod.clone())
                .collect()
        };
        let body = Replicas {
            namespace: self.namespace.clone(),
            coordinator: self.coordinator.clone(),
            collectors: names(Role::Collector),
            learners: names(Role::Learner),
        };
        self.send_request(
            self.client
                .post(format!("{}/failed", self.url))
                .json(&body)
                .timeout(READ_TIMEOUT),
        )
        .await
    }

    async fn send_request(&self, request: RequestBuilder) -> Result<Replicas> {
        let unreachable = |source| Error::Unreachable {
            url: self.url.clone(),
            source,
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let body = response.bytes().await.map_err(unreachable)?;
        parse_response(status, &body)
    }
}

/// Parses a response. The error shows whether a retry can help.
fn parse_response(status: StatusCode, body: &[u8]) -> Result<Replicas> {
    let envelope = serde_json::from_slice::<Envelope>(body).unwrap_or_else(|_| Envelope {
        success: false,
        code: 1,
        message: "the response is not the JSON of a replica endpoint".to_owned(),
        data: json!(null),
    });
    let Envelope {
        success,
        message,
        data,
        ..
    } = envelope;
    let status_code = status.as_u16();
    // These client errors are retryable: not yet known or allowed, conflict, too many requests.
    if status.is_client_error() && ![401, 403, 408, 409, 425, 429].contains(&status_code) {
        return Err(Error::Refused {
            status: status_code,
            message,
        });
    }
    if !success || !status.is_success() {
        return Err(Error::NotNow {
            status: status_code,
            message,
        });
    }
    serde_json::from_value(data).map_err(|error| Error::NotNow {
        status: status_code,
        message: format!("cannot parse the data of the response: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_answer(status: u16, body: &str) -> Result<Replicas> {
        parse_response(StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    #[test]
    fn successful_response_contains_replicas() {
        let body = json!({"success": true, "code": 0, "message": "", "data": {
            "namespace": "rl", "coordinator": "c", "collectors": ["a.rl:1", "b.rl:1"], "learners": ["l.rl:2"]}});
        assert_eq!(
            parse_answer(200, &body.to_string()).unwrap().collectors,
            ["a.rl:1", "b.rl:1"]
        );
    }

    #[test]
    fn only_permanent_failures_are_terminal() {
        let body =
            r#"{"success": false, "code": 1, "message": "no such coordinator", "data": null}"#;
        for status in [400, 404, 413, 422] {
            let error = parse_answer(status, body).unwrap_err();
            assert!(
                !error.is_transient() && error.to_string().contains("no such coordinator"),
                "{status}: {error}"
            );
        }
        for status in [200, 401, 403, 409, 429, 500, 503] {
            assert!(
                parse_answer(status, body).unwrap_err().is_transient(),
                "{status}"
            );
        }
        for body in ["<html>", "", r#"{"success": true, "data": 3}"#] {
            assert!(
                parse_answer(200, body).unwrap_err().is_transient(),
                "{body}"
            );
        }
        assert!(
            !parse_answer(404, "404 page not found")
                .unwrap_err()
                .is_transient()
        );
    }
}
