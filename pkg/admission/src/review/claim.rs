//! Who sets a template has pods made of it: what that takes a right to.

use di_api::{Role, names};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use serde_json::Value;

use super::{Answer, Kind, status, user::User, wire::Request};
use crate::Result;

/// Fields of a `DIJob` that say when and how many, never what runs. A field that is not named here is taken for a template.
const HARMLESS: [&str; 6] = [
    "group",
    "cleanPodPolicy",
    "suspend",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "backoffLimit",
];
/// The same, of a role.
const HARMLESS_OF_ROLES: [&str; 2] = ["replicas", "groups"];

/// Where pods may come of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    /// In this namespace.
    Namespace(String),
    /// In all of them.
    Cluster,
}

impl Scope {
    /// Of an object of this kind in this namespace.
    pub(super) fn of(kind: Kind, namespace: &str) -> Self {
        if kind == Kind::AggregatorConfig && namespace == names::SYSTEM_NAMESPACE {
            Self::Cluster
        } else {
            Self::Namespace(namespace.to_owned())
        }
    }
}

/// Whether a user may create pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    user: User,
    pub(super) scope: Scope,
}

impl Question {
    /// As it is put to the API server.
    pub fn review(&self) -> SubjectAccessReview {
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

    pub(super) fn username(&self) -> &str {
        self.user.username.as_deref().unwrap_or_default()
    }

    /// Where the pods would be.
    pub(super) fn place(&self) -> String {
        match &self.scope {
            Scope::Namespace(namespace) => format!("in the namespace {namespace:?}"),
            Scope::Cluster => "at the cluster scope".to_owned(),
        }
    }

    /// How much room its texts take, in bytes.
    pub(crate) fn size(&self) -> usize {
        let User {
            username,
            uid,
            groups,
            extra,
        } = &self.user;
        let extra = extra.iter().flatten();
        let extra = extra.flat_map(|(key, values)| std::iter::once(key).chain(values));
        let texts = username.iter().chain(uid);
        let texts = texts.chain(groups.iter().flatten()).chain(extra);
        texts.map(String::len).sum()
    }
}

/// An object that may be stored if its author may create pods.
#[derive(Clone, Debug)]
pub struct Claim {
    request: Request,
    question: Question,
    warnings: Vec<String>,
}

impl Claim {
    pub(super) fn new(mut request: Request, scope: Scope, warnings: Vec<String>) -> Self {
        let user = std::mem::take(&mut request.user);
        Self {
            request,
            question: Question { user, scope },
            warnings,
        }
    }

    /// What to ask the API server.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// The answer if its author may.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn granted(self) -> Result<Answer> {
        self.request.allow(self.warnings)
    }

    /// The answer if its author may not.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn refused(&self) -> Result<Answer> {
        self.request
            .deny(&status::forbidden(&self.request, &self.question))
    }

    /// The answer if nobody could say whether its author may.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn undecided(&self) -> Result<Answer> {
        self.request
            .deny(&status::undecided(&self.request, &self.question))
    }
}

/// Whether anything that runs differs between two objects of a kind.
pub(super) fn runs_otherwise(kind: Kind, old: &Value, new: &Value) -> bool {
    let (old, new) = (&old["spec"], &new["spec"]);
    old != new
        && match kind {
            Kind::DIJob => templates(old.clone()) != templates(new.clone()),
            Kind::AggregatorConfig => true,
        }
}

/// A job's spec without what is harmless.
fn templates(mut spec: Value) -> Value {
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|name, value| {
            let is_role = [Role::Coordinator, Role::Collector, Role::Learner]
                .iter()
                .any(|role| role.label() == name);
            if let (true, Some(role)) = (is_role, value.as_object_mut()) {
                role.retain(|name, _| !HARMLESS_OF_ROLES.contains(&name.as_str()));
            }
            !HARMLESS.contains(&name.as_str()) && !says_nothing(value)
        });
    }
    spec
}

/// Added or left out, it changes nothing.
fn says_nothing(value: &Value) -> bool {
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

    fn template(image: &str) -> Value {
        json!({"spec": {"containers": [{"name": "di-container", "image": image}]}})
    }

    fn spec() -> Value {
        json!({
            "coordinator": {"template": template("a")},
            "collector": {"template": template("a"), "replicas": 1},
        })
    }

    fn runs_otherwise(kind: Kind, old: &Value, new: &Value) -> bool {
        let object = |spec: &Value| json!({"metadata": {"name": "j"}, "spec": spec});
        super::runs_otherwise(kind, &object(old), &object(new))
    }

    #[test]
    fn pods_may_come_of_it_where_it_is_used() {
        let named = |name: &str| Scope::Namespace(name.to_owned());
        for (kind, namespace, expected) in [
            (Kind::DIJob, "rl", named("rl")),
            (Kind::DIJob, "di-system", named("di-system")),
            (Kind::AggregatorConfig, "rl", named("rl")),
            (Kind::AggregatorConfig, "di-system", Scope::Cluster),
        ] {
            assert_eq!(Scope::of(kind, namespace), expected);
        }
    }

    #[test]
    fn a_change_takes_the_right_if_it_changes_what_runs() {
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
            ("/spec/learner", json!({"template": template("a")}), true),
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
            let mut new = json!({"spec": spec()});
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            new.pointer_mut(parent).unwrap()[field] = value;
            let old = spec();
            for (old, new) in [(&old, &new["spec"]), (&new["spec"], &old)] {
                assert_eq!(runs_otherwise(Kind::DIJob, old, new), expected, "{pointer}");
            }
        }
        let old = json!({"aggregator": {"template": template("a")}});
        let new = json!({"aggregator": {"template": template("b")}});
        assert!(!runs_otherwise(Kind::AggregatorConfig, &old, &old));
        assert!(runs_otherwise(Kind::AggregatorConfig, &old, &new));
    }
}
