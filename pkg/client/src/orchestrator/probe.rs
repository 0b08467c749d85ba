use di_api::{DIJob, names};
use kube::core::ApiResource;
use serde_json::json;

use crate::{Cluster, Error, Result, resource::Resource};

/// What became of a question to the webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// They answer.
    Answers,
    /// The API server does not ask them.
    NotAsked,
    /// The API server cannot ask them.
    Unreachable(String),
    /// The user may not create jobs, so nobody is asked.
    Forbidden(String),
}

/// Has the server check a job that the schema takes and the webhooks do not: so it is their answer that comes. Nothing is kept.
///
/// # Errors
/// Those that tell nothing of the webhooks.
pub async fn probe(cluster: &Cluster, namespace: &str) -> Result<Probe> {
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
        Ok(_) => Ok(Probe::NotAsked),
        Err(Error::Server(status)) => {
            said(&status.message, status.is_forbidden()).ok_or(Error::Server(status))
        }
        Err(error) => Err(error),
    }
}

fn said(message: &str, forbidden: bool) -> Option<Probe> {
    if message.contains("failed calling webhook") {
        return Some(Probe::Unreachable(message.to_owned()));
    }
    let ours = message.starts_with("admission webhook") && message.contains(names::GROUP);
    if ours && message.contains("denied the request") {
        return Some(Probe::Answers);
    }
    forbidden.then(|| Probe::Forbidden(message.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_from_a_refusal_of_others() {
        let denied = r#"admission webhook "validate.diengine.opendilab.org" denied the request: x"#;
        assert_eq!(said(denied, true), Some(Probe::Answers));
        let other = r#"admission webhook "policy.example.com" denied the request: x"#;
        assert_eq!(said(other, false), None);
        let away = r#"Internal error occurred: failed calling webhook "validate.diengine.opendilab.org": refused"#;
        assert_eq!(said(away, false), Some(Probe::Unreachable(away.to_owned())));
        let rights = r#"dijobs is forbidden: User "x" cannot create resource"#;
        assert_eq!(
            said(rights, true),
            Some(Probe::Forbidden(rights.to_owned()))
        );
    }
}
