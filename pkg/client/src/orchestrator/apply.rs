use kube::core::Status;
use serde_json::Value;

use super::{installed::VERSION_LABEL, place};
use crate::{Cluster, Error, Result, resource::Resource};

/// Who writes what the orchestrator is made of, in the managed fields.
const FIELD_MANAGER: &str = "kubectl-di-install";
/// Kinds that administrators fit to their cluster. What they changed may have been applied by kubectl too, from an overlay.
const FITTED: [&str; 2] = ["Deployment", "NetworkPolicy"];

/// How objects are applied.
#[derive(Clone, Copy, Debug, Default)]
pub struct Apply {
    /// The server does all but keep them.
    pub dry_run: bool,
    /// Also where another manager says otherwise.
    pub force: bool,
}

/// An object that was applied.
#[derive(Clone, Debug)]
pub struct Applied {
    /// As the server has it now.
    pub object: Value,
    /// Fields that kubectl had applied otherwise, and that were taken over.
    pub taken_over: Vec<String>,
}

/// Applies an object on the server. What kubectl applied of other versions of the same manifests is taken over.
///
/// # Errors
/// Those of the server; a conflict is one about what somebody changed on purpose.
pub async fn apply(cluster: &Cluster, object: &Value, how: Apply) -> Result<Applied> {
    let (api, namespace) = place(object);
    let resource = Resource::new(cluster, &api, namespace);
    let apply = async |force| {
        resource
            .apply(object, FIELD_MANAGER, force, how.dry_run)
            .await
    };
    match apply(how.force).await {
        Ok(object) => Ok(Applied {
            object,
            taken_over: Vec::new(),
        }),
        Err(Error::Server(status)) => match to_take_over(&api.kind, &status) {
            Some(taken_over) => Ok(Applied {
                object: apply(true).await?,
                taken_over,
            }),
            None => Err(Error::Server(status)),
        },
        Err(error) => Err(error),
    }
}

/// The fields in the way, each once, where nothing is among them that somebody changed on purpose.
fn to_take_over(kind: &str, status: &Status) -> Option<Vec<String>> {
    let details = status.details.as_ref().filter(|_| status.code == 409)?;
    let mut fields = Vec::new();
    for cause in &details.causes {
        let differs = !FITTED.contains(&kind) || differs_between_versions(&cause.field);
        if cause.reason != "FieldManagerConflict" || !differs || !was_applied(&cause.message) {
            return None;
        }
        fields.push(cause.field.clone());
    }
    fields.sort();
    fields.dedup();
    (!fields.is_empty()).then_some(fields)
}

/// Whether those in the way applied manifests by kubectl, on either side; what `kubectl edit`, `patch`, `set` or `scale` wrote is meant to
/// differ.
fn was_applied(message: &str) -> bool {
    // conflict with "MANAGER" using apps/v1 at TIME
    let manager = message.split('"').nth(1).unwrap_or_default();
    match manager {
        "kubectl-client-side-apply" => true,
        // Some write under this name too. Of them a version is told, and of what was applied on the server none.
        "kubectl" => !message.contains(" using "),
        _ => false,
    }
}

/// Whether a field of what administrators fit is another in each version all the same.
fn differs_between_versions(field: &str) -> bool {
    let of_container = field.starts_with(".spec.template.spec.containers[");
    (of_container && field.ends_with("].image"))
        || field.strip_prefix(".metadata.labels.") == Some(VERSION_LABEL)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const IMAGE: &str = r#".spec.template.spec.containers[name="manager"].image"#;
    const LIMIT: &str = r#".spec.template.spec.containers[name="manager"].resources.limits.memory"#;
    const LABEL: &str = ".metadata.labels.app.kubernetes.io/version";
    const BY_KUBECTL: &str = r#"conflict with "kubectl-client-side-apply" using apps/v1 at TIME"#;
    const ON_THE_SERVER: &str = r#"conflict with "kubectl""#;
    const SCALED: &str = r#"conflict with "kubectl" with subresource "scale" using apps/v1"#;

    fn taken_over(kind: &str, causes: &[(&str, &str)]) -> Option<Vec<String>> {
        let causes = causes.iter().map(|(message, field)| {
            json!({"reason": "FieldManagerConflict", "message": message, "field": field})
        });
        let causes: Vec<_> = causes.collect();
        let status = json!({
            "status": "Failure", "code": 409, "reason": "Conflict", "message": "",
            "details": {"causes": causes},
        });
        to_take_over(kind, &serde_json::from_value(status).unwrap())
    }

    #[test]
    fn only_what_was_applied_before_is_taken_over() {
        let rules = ".rules";
        let both = [(BY_KUBECTL, rules), (ON_THE_SERVER, rules)];
        let taken = taken_over("ClusterRole", &both);
        assert_eq!(taken.as_deref(), Some(&[rules.to_owned()][..]), "each once");
        for message in [
            SCALED,
            r#"conflict with "kubectl-edit" using rbac.authorization.k8s.io/v1"#,
            r#"conflict with "argocd-controller""#,
        ] {
            let causes = [both[0], (message, rules)];
            assert_eq!(taken_over("ClusterRole", &causes), None, "{message}");
        }
        assert_eq!(taken_over("ClusterRole", &[]), None);
    }

    #[test]
    fn what_administrators_fit_stays_theirs() {
        let version = [(BY_KUBECTL, IMAGE), (ON_THE_SERVER, LABEL)];
        let taken = taken_over("Deployment", &version);
        assert_eq!(taken, Some(vec![LABEL.to_owned(), IMAGE.to_owned()]));
        for (kind, field) in [
            ("Deployment", LIMIT),
            ("Deployment", ".spec.replicas"),
            ("NetworkPolicy", ".spec.egress"),
        ] {
            for message in [BY_KUBECTL, ON_THE_SERVER] {
                let causes = [version[0], (message, field)];
                assert_eq!(taken_over(kind, &causes), None, "{field}");
            }
        }
    }
}
