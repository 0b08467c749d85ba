use kube::core::Status;
use serde_json::Value;

use super::place;
use crate::{Cluster, Error, Result, resource::Resource};

/// Who writes what the orchestrator is made of, in the managed fields.
const FIELD_MANAGER: &str = "kubectl-di-install";
/// Whoever applied the manifests by kubectl, on either side; what `kubectl edit`, `patch` or `set` wrote is meant to differ.
const SAME_MANIFESTS: [&str; 2] = ["kubectl-client-side-apply", "kubectl"];

/// How objects are applied.
#[derive(Clone, Copy, Debug, Default)]
pub struct Apply {
    /// The server does all but keep them.
    pub dry_run: bool,
    /// Also where another manager says otherwise.
    pub force: bool,
}

/// Applies an object on the server. Where it was applied by kubectl before, it is taken over.
///
/// # Errors
/// Those of the server; a conflict is one with a manager who does not apply these manifests.
pub async fn apply(cluster: &Cluster, object: &Value, how: Apply) -> Result<Value> {
    let (api, namespace) = place(object);
    let resource = Resource::new(cluster, &api, namespace);
    let applied = resource
        .apply(object, FIELD_MANAGER, how.force, how.dry_run)
        .await;
    match applied {
        Err(Error::Server(status)) if only_ours(&status) => {
            resource
                .apply(object, FIELD_MANAGER, true, how.dry_run)
                .await
        }
        applied => applied,
    }
}

/// Whether all that is in the way was written by those who applied the same manifests.
fn only_ours(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|details| &details.causes);
    let causes = causes.map(Vec::as_slice).unwrap_or_default();
    status.code == 409
        && !causes.is_empty()
        && causes.iter().all(|cause| {
            // conflict with "manager" using apps/v1 at TIME
            let manager = cause.message.split('"').nth(1).unwrap_or_default();
            cause.reason == "FieldManagerConflict" && SAME_MANIFESTS.contains(&manager)
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn conflict(managers: &[&str]) -> Status {
        let causes: Vec<_> = managers
            .iter()
            .map(|manager| {
                json!({
                    "reason": "FieldManagerConflict",
                    "message": format!("conflict with \"{manager}\" using apps/v1"),
                    "field": ".spec.replicas",
                })
            })
            .collect();
        let status = json!({
            "status": "Failure", "code": 409, "reason": "Conflict", "message": "",
            "details": {"causes": causes},
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn only_what_was_applied_before_is_taken_over() {
        assert!(only_ours(&conflict(&[
            "kubectl-client-side-apply",
            "kubectl"
        ])));
        assert!(!only_ours(&conflict(&[
            "kubectl-client-side-apply",
            "kubectl-edit"
        ])));
        assert!(!only_ours(&conflict(&["argocd-controller"])));
        assert!(!only_ours(&conflict(&[])));
    }
}
