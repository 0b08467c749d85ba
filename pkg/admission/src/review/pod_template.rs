//! Detects updates that change the pods of an object.

use di_api::Role;
use serde_json::Value;

use super::request::Kind;

/// Fields of a `DIJob` spec that do not change the pods. Every other field counts as a template.
const NON_TEMPLATE_FIELDS: [&str; 10] = [
    "group",
    "cleanPodPolicy",
    "suspend",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "backoffLimit",
    "failureTails",
    "failureRules",
    "queueing",
    "scheduling",
];
/// Fields of a role that do not change its pods.
const NON_TEMPLATE_ROLE_FIELDS: [&str; 2] = ["replicas", "groups"];

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
            ("/spec/failureTails", json!(false), false),
            ("/spec/queueing", json!({"elastic": "Whole"}), false),
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
