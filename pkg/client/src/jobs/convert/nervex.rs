//! Converts manifests of the predecessor: `NerveXJob` and `AggregatorConfig` of the group
//! `nervex.sensetime.com`.

use di_api::names;
use serde_json::Value;

use crate::Document;

const GROUP: &str = "nervex.sensetime.com";
const MAIN_CONTAINER: &str = "nervex-container";
const PORT_NAME: &str = "nervex-port";
const SYSTEM_NAMESPACE: &str = "nervex-system";
const ROLES: [&str; 4] = ["coordinator", "collector", "learner", "aggregator"];

/// Converts a document of the predecessor and describes the changes. `None` for other documents.
pub(super) fn convert_nervex(document: &mut Document) -> Option<String> {
    let object = &mut document.object;
    let group = object["apiVersion"].as_str()?.split('/').next()?;
    let kind = object["kind"].as_str()?.to_owned();
    let new_kind = match kind.to_ascii_lowercase().as_str() {
        "nervexjob" => "DIJob",
        "aggregatorconfig" => "AggregatorConfig",
        _ => return None,
    };
    if group != GROUP {
        return None;
    }
    object["apiVersion"] = format!("{}/{}", names::GROUP, names::VERSION).into();
    object["kind"] = new_kind.into();
    if let Some(object) = object.as_object_mut() {
        // The status has another format.
        object.remove("status");
    }
    let mut changes = Vec::new();
    if object["metadata"]["namespace"] == SYSTEM_NAMESPACE {
        object["metadata"]["namespace"] = names::SYSTEM_NAMESPACE.into();
        changes.push(format!(
            "namespace {SYSTEM_NAMESPACE} -> {}",
            names::SYSTEM_NAMESPACE
        ));
    }
    for role in ROLES {
        if let Some(containers) = object
            .pointer_mut(&format!("/spec/{role}/template/spec/containers"))
            .and_then(Value::as_array_mut)
        {
            rename_main_container(role, containers, &mut changes);
        }
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let mut note = format!(
        "{}: {kind} {name:?} was converted to a {new_kind}",
        document.origin
    );
    if !changes.is_empty() {
        note = format!("{note} ({})", changes.join(", "));
    }
    Some(note)
}

/// Renames the main container and its port. A single container is the main container.
fn rename_main_container(role: &str, containers: &mut [Value], changes: &mut Vec<String>) {
    let has_container = |name: &str| containers.iter().any(|container| container["name"] == name);
    if has_container(names::MAIN_CONTAINER) {
        return;
    }
    let main = match containers.iter().position(|c| c["name"] == MAIN_CONTAINER) {
        Some(i) => &mut containers[i],
        None if containers.len() == 1 => &mut containers[0],
        None => return,
    };
    if let Some(old) = main["name"].as_str() {
        changes.push(format!(
            "{role}: container {old} -> {}",
            names::MAIN_CONTAINER
        ));
    }
    main["name"] = names::MAIN_CONTAINER.into();
    let ports = main.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports
        .into_iter()
        .flatten()
        .filter(|port| port["name"] == PORT_NAME)
    {
        port["name"] = names::PORT_NAME.into();
        changes.push(format!("{role}: port {PORT_NAME} -> {}", names::PORT_NAME));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn convert_object(object: Value) -> (Value, Option<String>) {
        let mut document = Document {
            origin: "job.yaml".into(),
            object,
        };
        let note = convert_nervex(&mut document);
        (document.object, note)
    }

    fn role_template(container: &Value) -> Value {
        json!({"template": {"spec": {"containers": [container]}}})
    }

    #[test]
    fn nervex_job_becomes_valid_dijob() {
        let nervex = json!({
            "apiVersion": "nervex.sensetime.com/v1alpha1", "kind": "NerveXJob",
            "metadata": {"name": "old"},
            "spec": {
                "group": "g", "priorityClassName": "high", "cleanPodPolicy": "ALL",
                "volumes": [{"name": "data", "emptyDir": {}}],
                "coordinator":  role_template(&json!({"name": "nervex-container", "image": "i", "ports": [{"name": "nervex-port", "containerPort": 80}]})),
                "collector":  role_template(&json!({"name": "collector", "image": "i"})),
                "learner":  role_template(&json!({"name": "di-container", "image": "i"})),
            },
            "status": {"phase": "Running"},
        });
        let (object, note) = convert_object(nervex);
        assert_eq!(
            note.as_deref(),
            Some(
                "job.yaml: NerveXJob \"old\" was converted to a DIJob (coordinator: container nervex-container -> di-container, \
                 coordinator: port nervex-port -> di-port, collector: container collector -> di-container)"
            )
        );
        assert_eq!(object["kind"], "DIJob");
        assert_eq!(object.get("status"), None);
        assert_eq!(object["spec"]["group"], "g");
        assert!(!object.to_string().contains("null"), "{object}");
        di_api::validation::validate_dijob(&object).unwrap();
    }

    #[test]
    fn nervex_aggregator_config_moves_to_di_system() {
        let (object, note) = convert_object(json!({
            "apiVersion": "nervex.sensetime.com/v1alpha1", "kind": "AggregatorConfig",
            "metadata": {"name": "aggregator-config", "namespace": "nervex-system"},
            "spec": {"aggregator":  role_template(&json!({"name": "aggregator", "image": "i"}))},
        }));
        assert!(note.is_some());
        assert_eq!(object["metadata"]["namespace"], "di-system");
        di_api::validation::validate_aggregator_config(&object).unwrap();
    }

    #[test]
    fn other_documents_are_not_converted() {
        for (version, kind) in [
            ("diengine.opendilab.org/v1alpha2", "DIJob"),
            ("other.example/v1", "NerveXJob"),
            ("nervex.sensetime.com/v1alpha1", "ActorLearnerConfig"),
        ] {
            let object = json!({"apiVersion": version, "kind": kind});
            assert_eq!(convert_object(object.clone()), (object, None));
        }
    }
}
