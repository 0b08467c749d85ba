//! Who sets a template has pods made of it: what that takes a right to.

use di_api::{Role, names};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use serde_json::Value;

use super::{Answer, status, wire::Request};
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// In this namespace.
    Namespace(String),
    /// In all of them.
    Cluster,
}

/// An object that may be stored if its author may create pods.
#[derive(Clone, Debug)]
pub struct Claim {
    request: Request,
    scope: Scope,
    warnings: Vec<String>,
}

impl Claim {
    pub(super) fn new(request: Request, scope: Scope, warnings: Vec<String>) -> Self {
        Self {
            request: request.without_objects(),
            scope,
            warnings,
        }
    }

    /// What to ask the API server.
    pub fn question(&self) -> SubjectAccessReview {
        let user = self.request.user_info.clone();
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
        let remedy = match &self.scope {
            Scope::Namespace(namespace) => {
                format!("ask for a Role in the namespace {namespace:?} that allows to create pods")
            }
            Scope::Cluster => format!(
                "ask for a ClusterRole that allows to create pods in all namespaces, as administrators have, because jobs of all \
                 namespaces use what is in {}; or make your own in the namespace of your jobs",
                names::SYSTEM_NAMESPACE
            ),
        };
        let status = status::forbidden(&self.request, &self.place(), &remedy);
        self.request.deny(&status)
    }

    /// The answer if nobody could say whether its author may.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn undecided(&self) -> Result<Answer> {
        let status = status::undecided(&self.request, &self.place());
        self.request.deny(&status)
    }

    fn place(&self) -> String {
        match &self.scope {
            Scope::Namespace(namespace) => format!("in the namespace {namespace:?}"),
            Scope::Cluster => "at the cluster scope".to_owned(),
        }
    }
}

/// Where the author of `new` must be allowed to create pods, if anything that runs differs from `old`.
pub(super) fn scope(
    kind: &str,
    namespace: &str,
    old: Option<&Value>,
    new: &Value,
) -> Option<Scope> {
    let is_job = kind == "DIJob";
    let runs = |object: &Value| {
        let spec = object["spec"].clone();
        if is_job { templates(spec) } else { spec }
    };
    if old.is_some_and(|old| old["spec"] == new["spec"] || runs(old) == runs(new)) {
        return None;
    }
    let is_for_everybody = !is_job && namespace == names::SYSTEM_NAMESPACE;
    Some(if is_for_everybody {
        Scope::Cluster
    } else {
        Scope::Namespace(namespace.to_owned())
    })
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

    const HERE: Option<&str> = Some("rl");
    const EVERYWHERE: Option<&str> = Some("everywhere");
    const NOWHERE: Option<&str> = None;

    fn template(image: &str) -> Value {
        json!({"spec": {"containers": [{"name": "di-container", "image": image}]}})
    }

    fn spec() -> Value {
        json!({
            "coordinator": {"template": template("a")},
            "collector": {"template": template("a"), "replicas": 1},
        })
    }

    fn claimed(kind: &str, namespace: &str, old: Option<&Value>, new: &Value) -> Option<String> {
        let object = |spec: &Value| json!({"metadata": {"name": "j"}, "spec": spec});
        let scope = scope(kind, namespace, old.map(object).as_ref(), &object(new));
        scope.map(|scope| match scope {
            Scope::Namespace(name) => name,
            Scope::Cluster => "everywhere".to_owned(),
        })
    }

    #[test]
    fn what_is_new_takes_the_right_where_it_runs() {
        for (kind, namespace, expected) in [
            ("DIJob", "rl", HERE),
            (
                "DIJob",
                names::SYSTEM_NAMESPACE,
                Some(names::SYSTEM_NAMESPACE),
            ),
            ("AggregatorConfig", "rl", HERE),
            ("AggregatorConfig", names::SYSTEM_NAMESPACE, EVERYWHERE),
        ] {
            let found = claimed(kind, namespace, None, &spec());
            assert_eq!(found.as_deref(), expected, "{kind} in {namespace}");
        }
    }

    #[test]
    fn a_change_takes_the_right_if_it_changes_what_runs() {
        let pointers = [
            (
                "/spec/coordinator/template/spec/containers/0/image",
                json!("b"),
                HERE,
            ),
            (
                "/spec/collector/template/spec/hostNetwork",
                json!(true),
                HERE,
            ),
            ("/spec/learner", json!({"template": template("a")}), HERE),
            ("/spec/collector", json!({"replicas": 1}), HERE),
            (
                "/spec/volumes",
                json!([{"name": "v", "hostPath": {"path": "/"}}]),
                HERE,
            ),
            ("/spec/priorityClassName", json!("high"), HERE),
            ("/spec/somethingNew", json!(1), HERE),
            ("/spec/coordinator/somethingNew", json!(1), HERE),
            ("/spec/collector/replicas", json!(7), NOWHERE),
            (
                "/spec/collector/groups",
                json!([{"name": "g", "replicas": 2}]),
                NOWHERE,
            ),
            ("/spec/volumes", json!([]), NOWHERE),
            ("/spec/priorityClassName", json!(""), NOWHERE),
            ("/spec/learner", Value::Null, NOWHERE),
            ("/spec/group", json!("g"), NOWHERE),
            ("/spec/suspend", json!(true), NOWHERE),
            ("/spec/cleanPodPolicy", json!("All"), NOWHERE),
            ("/spec/activeDeadlineSeconds", json!(1), NOWHERE),
            ("/spec/ttlSecondsAfterFinished", json!(1), NOWHERE),
            ("/spec/backoffLimit", json!(1), NOWHERE),
        ];
        for (pointer, value, expected) in pointers {
            let mut new = json!({"spec": spec()});
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            new.pointer_mut(parent).unwrap()[field] = value;
            let old = spec();
            for (old, new) in [(&old, &new["spec"]), (&new["spec"], &old)] {
                let found = claimed("DIJob", "rl", Some(old), new);
                assert_eq!(found.as_deref(), expected, "{pointer}");
            }
        }
        let old = json!({"aggregator": {"template": template("a")}});
        let new = json!({"aggregator": {"template": template("b")}});
        assert_eq!(claimed("AggregatorConfig", "rl", Some(&old), &old), None);
        assert_eq!(
            claimed("AggregatorConfig", "di-system", Some(&old), &new).as_deref(),
            EVERYWHERE
        );
    }
}
