use kube::core::Status;
use serde_json::Value;

use super::installed::VERSION_LABEL;
use crate::{
    Cluster, Error, Result,
    connection::resource::{Resource, resource_of},
};

/// Field manager of the installed objects.
const FIELD_MANAGER: &str = "kubectl-di-install";
/// Kinds that administrators adapt to their cluster, possibly with `kubectl apply` of an overlay.
const CUSTOMIZED_KINDS: [&str; 2] = ["Deployment", "NetworkPolicy"];

/// Options of a server-side apply.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyOptions {
    /// The server checks the request and stores nothing.
    pub dry_run: bool,
    /// Takes over fields of other managers.
    pub force: bool,
}

/// An applied object.
#[derive(Clone, Debug)]
pub struct AppliedObject {
    /// The object as the server returned it.
    pub object: Value,
    /// Conflicting fields that were taken over from kubectl.
    pub taken_over: Vec<String>,
}

/// Applies an object with server-side apply.
///
/// Fields that `kubectl apply` set from another version of the manifests are taken over.
///
/// # Errors
/// A conflict means that a field was changed on purpose.
pub async fn apply_object(
    cluster: &Cluster,
    object: &Value,
    how: ApplyOptions,
) -> Result<AppliedObject> {
    let (api, namespace) = resource_of(object);
    let resource = Resource::new(cluster, &api, namespace);
    let apply_as = async |force| {
        resource
            .apply(object, FIELD_MANAGER, force, how.dry_run)
            .await
    };
    match apply_as(how.force).await {
        Ok(object) => Ok(AppliedObject {
            object,
            taken_over: Vec::new(),
        }),
        Err(Error::Server(status)) => match to_take_over(&api.kind, &status) {
            Some(taken_over) => Ok(AppliedObject {
                object: apply_as(true).await?,
                taken_over,
            }),
            None => Err(Error::Server(status)),
        },
        Err(error) => Err(error),
    }
}

/// The conflicting fields, or `None` if one was changed on purpose.
fn to_take_over(kind: &str, status: &Status) -> Option<Vec<String>> {
    let details = status.details.as_ref().filter(|_| status.code == 409)?;
    let mut fields = Vec::new();
    for cause in &details.causes {
        let may_overwrite =
            !CUSTOMIZED_KINDS.contains(&kind) || differs_between_versions(&cause.field);
        if cause.reason != "FieldManagerConflict" || !may_overwrite || !was_applied(&cause.message)
        {
            return None;
        }
        fields.push(cause.field.clone());
    }
    fields.sort();
    fields.dedup();
    (!fields.is_empty()).then_some(fields)
}

/// Whether the conflicting manager is `kubectl apply`, client-side or server-side.
///
/// Changes by `kubectl edit`, `patch`, `set` or `scale` are intended and stay.
fn was_applied(message: &str) -> bool {
    // conflict with "MANAGER" using apps/v1 at TIME
    let manager = message.split('"').nth(1).unwrap_or_default();
    match manager {
        "kubectl-client-side-apply" => true,
        // Other kubectl commands use this name too, but their conflicts name an API version.
        "kubectl" => !message.contains(" using "),
        _ => false,
    }
}

/// Whether each version of the manifests changes this field of a customized kind.
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
    fn fields_of_kubectl_apply_are_taken_over() {
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
    fn customized_fields_are_not_taken_over() {
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
