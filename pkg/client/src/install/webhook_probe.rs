use di_api::{DIJob, names};
use kube::core::ApiResource;
use serde_json::json;

use crate::{Cluster, Error, Result, connection::resource::Resource};

/// Whether the API server reaches the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookState {
    /// The webhooks answer.
    Reachable,
    /// The API server does not call the webhooks.
    NotCalled,
    /// The API server cannot reach the webhooks. Contains its message.
    Unreachable(String),
    /// The user may not create jobs, so the webhooks are not called. Contains the server's message.
    Forbidden(String),
}

/// Checks whether the API server reaches the webhooks. Nothing is stored.
///
/// Sends a dry-run create of a job that the schema accepts and the webhooks reject.
///
/// # Errors
/// Errors that are unrelated to the webhooks.
pub async fn probe_webhooks(cluster: &Cluster, namespace: &str) -> Result<WebhookState> {
    let api = ApiResource::erase::<DIJob>(&());
    let container = json!({"name": "not-di-container", "image": "none"});
    let job = json!({
        "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
        "kind": "DIJob",
        "metadata": {"generateName": "webhook-probe-"},
        "spec": {"coordinator": {"template": {"spec": {"containers": [container]}}}},
    });
    let resource = Resource::new(cluster, &api, Some(namespace));
    match resource.create(&job, true).await {
        Ok(_) => Ok(WebhookState::NotCalled),
        Err(Error::Server(status)) => {
            parse_rejection(&status.message, status.is_forbidden()).ok_or(Error::Server(status))
        }
        Err(error) => Err(error),
    }
}

fn parse_rejection(message: &str, forbidden: bool) -> Option<WebhookState> {
    if message.contains("failed calling webhook") {
        return Some(WebhookState::Unreachable(message.to_owned()));
    }
    let ours = message.starts_with("admission webhook") && message.contains(names::GROUP);
    if ours && message.contains("denied the request") {
        return Some(WebhookState::Reachable);
    }
    forbidden.then(|| WebhookState::Forbidden(message.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhook_rejection_differs_from_other_errors() {
        let denied = r#"admission webhook "validate.diengine.opendilab.org" denied the request: x"#;
        assert_eq!(parse_rejection(denied, true), Some(WebhookState::Reachable));
        let other = r#"admission webhook "policy.example.com" denied the request: x"#;
        assert_eq!(parse_rejection(other, false), None);
        let unreachable = r#"Internal error occurred: failed calling webhook "validate.diengine.opendilab.org": refused"#;
        assert_eq!(
            parse_rejection(unreachable, false),
            Some(WebhookState::Unreachable(unreachable.to_owned()))
        );
        let forbidden = r#"dijobs is forbidden: User "x" cannot create resource"#;
        assert_eq!(
            parse_rejection(forbidden, true),
            Some(WebhookState::Forbidden(forbidden.to_owned()))
        );
    }
}
