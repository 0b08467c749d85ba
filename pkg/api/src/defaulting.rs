use json_patch::{AddOperation, Patch, PatchOperation};
use serde_json::Value;

/// Returns the defaults of a `DIJob` that its CRD cannot express, as a JSON patch. The patch is
/// empty if the object has them all.
///
/// `spec.cleanPodPolicy`: empty becomes Running, and ALL (the spelling of DI-engine v0.2) becomes
/// All.
pub fn default_patch(object: &Value) -> Patch {
    let policy = &object["spec"]["cleanPodPolicy"];
    let default = match policy.as_str() {
        Some("ALL") => Some("All"),
        Some("") => Some("Running"),
        None if policy.is_null() && object["spec"].is_object() => Some("Running"),
        _ => None,
    };
    Patch(
        default
            .map(|policy| {
                PatchOperation::Add(AddOperation {
                    path: json_patch::jsonptr::PointerBuf::from_tokens(["spec", "cleanPodPolicy"]),
                    value: policy.into(),
                })
            })
            .into_iter()
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn clean_pod_policy_is_defaulted_once() {
        for (written, stored) in [
            (json!({}), json!({"cleanPodPolicy": "Running"})),
            (
                json!({"cleanPodPolicy": ""}),
                json!({"cleanPodPolicy": "Running"}),
            ),
            (
                json!({"cleanPodPolicy": "ALL"}),
                json!({"cleanPodPolicy": "All"}),
            ),
            (
                json!({"cleanPodPolicy": "None"}),
                json!({"cleanPodPolicy": "None"}),
            ),
            (
                json!({"cleanPodPolicy": "Sometimes"}),
                json!({"cleanPodPolicy": "Sometimes"}),
            ),
            (json!({"cleanPodPolicy": 3}), json!({"cleanPodPolicy": 3})),
        ] {
            let mut object = json!({"spec": written});
            let patch = default_patch(&object);
            json_patch::patch(&mut object, &patch).unwrap();
            assert_eq!(object["spec"], stored);
            assert!(
                default_patch(&object).0.is_empty(),
                "defaulting twice changes nothing"
            );
        }
        assert!(default_patch(&json!({"spec": null})).0.is_empty());
    }
}
