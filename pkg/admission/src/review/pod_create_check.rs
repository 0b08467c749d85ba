//! Checks that the author of a template may create pods. See docs/decisions/0010.

use di_api::{Role, names};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use serde_json::Value;

use super::{Kind, ReviewResponse, status, user::User, wire::Request};
use crate::Result;

/// Fields of a `DIJob` spec that do not change the pods. Every other field counts as a template.
const NON_TEMPLATE_FIELDS: [&str; 6] = [
    "group",
    "cleanPodPolicy",
    "suspend",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "backoffLimit",
];
/// Fields of a role that do not change its pods.
const NON_TEMPLATE_ROLE_FIELDS: [&str; 2] = ["replicas", "groups"];

/// The namespaces in which an object can cause pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    /// One namespace.
    Namespace(String),
    /// All namespaces.
    Cluster,
}

impl Scope {
    /// The scope of an object of this kind in this namespace.
    pub(super) fn for_object(kind: Kind, namespace: &str) -> Self {
        if kind == Kind::AggregatorConfig && namespace == names::SYSTEM_NAMESPACE {
            Self::Cluster
        } else {
            Self::Namespace(namespace.to_owned())
        }
    }
}

/// The query whether a user may create pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccessQuery {
    user: User,
    pub(super) scope: Scope,
}

impl AccessQuery {
    /// The query as a `SubjectAccessReview` for the API server.
    pub fn to_access_review(&self) -> SubjectAccessReview {
        let user = self.user.clone();
        SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                resource_attributes: Some(ResourceAttributes {
                    verb: Some("create".to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("pods".to_owned()),
                    namespace: match &self.scope {
                        Scope::Namespace(name) => Some(name.clone()),
                        Scope::Cluster => None,
                    },
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        }
    }

    pub(super) fn user_name(&self) -> &str {
        self.user.username.as_deref().unwrap_or_default()
    }

    /// The scope as text, in the wording of Kubernetes.
    pub(super) fn scope_text(&self) -> String {
        match &self.scope {
            Scope::Namespace(namespace) => format!("in the namespace {namespace:?}"),
            Scope::Cluster => "at the cluster scope".to_owned(),
        }
    }

    /// Size of the strings of the query in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        let User {
            username,
            uid,
            groups,
            extra,
        } = &self.user;
        let extra = extra.iter().flatten();
        let extra = extra.flat_map(|(key, values)| std::iter::once(key).chain(values));
        let strings = username.iter().chain(uid);
        let strings = strings.chain(groups.iter().flatten()).chain(extra);
        strings.map(String::len).sum()
    }
}

/// A valid object that is allowed if its author may create pods.
#[derive(Clone, Debug)]
pub struct PodCreateCheck {
    request: Request,
    access_query: AccessQuery,
    warnings: Vec<String>,
}

impl PodCreateCheck {
    pub(super) fn new(mut request: Request, scope: Scope, warnings: Vec<String>) -> Self {
        let user = std::mem::take(&mut request.user);
        Self {
            request,
            access_query: AccessQuery { user, scope },
            warnings,
        }
    }

    /// The query for the API server.
    pub fn access_query(&self) -> &AccessQuery {
        &self.access_query
    }

    /// The response if the author may create pods.
    ///
    /// # Errors
    /// When the response cannot be encoded.
    pub fn allow_response(self) -> Result<ReviewResponse> {
        self.request.allow(self.warnings)
    }

    /// The response if the author may not create pods.
    ///
    /// # Errors
    /// When the response cannot be encoded.
    pub fn deny_response(&self) -> Result<ReviewResponse> {
        self.request
            .deny(&status::forbidden_pods(&self.request, &self.access_query))
    }

    /// The response if the API server could not authorize the author.
    ///
    /// # Errors
    /// When the response cannot be encoded.
    pub fn error_response(&self) -> Result<ReviewResponse> {
        self.request.deny(&status::authorization_unavailable(
            &self.request,
            &self.access_query,
        ))
    }
}

/// Whether an update changes the pods of an object.
pub(super) fn changes_pod_template(kind: Kind, old: &Value, new: &Value) -> bool {
    let (old, new) = (&old["spec"], &new["spec"]);
    old != new
        && match kind {
            Kind::DIJob => template_fields(old.clone()) != template_fields(new.clone()),
            Kind::AggregatorConfig => true,
        }
}

/// The spec of a job without the fields that do not change its pods.
fn template_fields(mut spec: Value) -> Value {
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|name, value| {
            let is_role = [Role::Coordinator, Role::Collector, Role::Learner]
                .iter()
                .any(|role| role.label() == name);
            if let (true, Some(role)) = (is_role, value.as_object_mut()) {
                role.retain(|name, _| !NON_TEMPLATE_ROLE_FIELDS.contains(&name.as_str()));
            }
            !NON_TEMPLATE_FIELDS.contains(&name.as_str()) && !is_empty_value(value)
        });
    }
    spec
}

/// Whether a value means the same as a missing field.
fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template_with_image(image: &str) -> Value {
        json!({"spec": {"containers": [{"name": "di-container", "image": image}]}})
    }

    fn job_spec() -> Value {
        json!({
            "coordinator": {"template": template_with_image("a")},
            "collector": {"template": template_with_image("a"), "replicas": 1},
        })
    }

    fn spec_changes_template(kind: Kind, old: &Value, new: &Value) -> bool {
        let object = |spec: &Value| json!({"metadata": {"name": "j"}, "spec": spec});
        changes_pod_template(kind, &object(old), &object(new))
    }

    #[test]
    fn scope_is_cluster_only_for_system_config() {
        let named = |name: &str| Scope::Namespace(name.to_owned());
        for (kind, namespace, expected) in [
            (Kind::DIJob, "rl", named("rl")),
            (Kind::DIJob, "di-system", named("di-system")),
            (Kind::AggregatorConfig, "rl", named("rl")),
            (Kind::AggregatorConfig, "di-system", Scope::Cluster),
        ] {
            assert_eq!(Scope::for_object(kind, namespace), expected);
        }
    }

    #[test]
    fn template_change_is_detected_per_field() {
        let pointers = [
            (
                "/spec/coordinator/template/spec/containers/0/image",
                json!("b"),
                true,
            ),
            (
                "/spec/collector/template/spec/hostNetwork",
                json!(true),
                true,
            ),
            (
                "/spec/learner",
                json!({"template": template_with_image("a")}),
                true,
            ),
            ("/spec/collector", json!({"replicas": 1}), true),
            (
                "/spec/volumes",
                json!([{"name": "v", "hostPath": {"path": "/"}}]),
                true,
            ),
            ("/spec/priorityClassName", json!("high"), true),
            ("/spec/somethingNew", json!(1), true),
            ("/spec/coordinator/somethingNew", json!(1), true),
            ("/spec/collector/replicas", json!(7), false),
            (
                "/spec/collector/groups",
                json!([{"name": "g", "replicas": 2}]),
                false,
            ),
            ("/spec/volumes", json!([]), false),
            ("/spec/priorityClassName", json!(""), false),
            ("/spec/learner", Value::Null, false),
            ("/spec/group", json!("g"), false),
            ("/spec/suspend", json!(true), false),
            ("/spec/cleanPodPolicy", json!("All"), false),
            ("/spec/activeDeadlineSeconds", json!(1), false),
            ("/spec/ttlSecondsAfterFinished", json!(1), false),
            ("/spec/backoffLimit", json!(1), false),
        ];
        for (pointer, value, expected) in pointers {
            let mut new = json!({"spec": job_spec()});
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            new.pointer_mut(parent).unwrap()[field] = value;
            let old = job_spec();
            for (old, new) in [(&old, &new["spec"]), (&new["spec"], &old)] {
                assert_eq!(
                    spec_changes_template(Kind::DIJob, old, new),
                    expected,
                    "{pointer}"
                );
            }
        }
        let old = json!({"aggregator": {"template": template_with_image("a")}});
        let new = json!({"aggregator": {"template": template_with_image("b")}});
        assert!(!spec_changes_template(Kind::AggregatorConfig, &old, &old));
        assert!(spec_changes_template(Kind::AggregatorConfig, &old, &new));
    }
}
