use std::collections::BTreeMap;

use di_api::{PodTemplate, names};
use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements, Toleration, Volume};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Turns the spec of a template into that of a pod, and keeps what it does not know.
///
/// Fields of a wrong type stay as they are: the API server rejects them with its own message.
pub(crate) struct PodSpecEditor(Map<String, Value>);

impl PodSpecEditor {
    pub(super) fn new(template: &PodTemplate) -> Self {
        Self(
            template
                .part("spec")
                .as_object()
                .cloned()
                .unwrap_or_default(),
        )
    }

    pub(crate) fn from_fields(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    pub(crate) fn into_fields(self) -> Map<String, Value> {
        self.0
    }

    /// Adds the volumes whose names the template does not have.
    pub(super) fn add_volumes(&mut self, volumes: &[Volume]) {
        let Some(own) = list_in(&mut self.0, "volumes") else {
            return;
        };
        for volume in volumes {
            if !own.iter().any(|own| own["name"] == volume.name.as_str()) {
                own.extend(serde_json::to_value(volume));
            }
        }
    }

    /// Adds the labels that nodes must have.
    pub(super) fn add_node_selector(&mut self, labels: &BTreeMap<String, String>) {
        if labels.is_empty() {
            return;
        }
        if let Some(selector) = object_in(&mut self.0, "nodeSelector") {
            selector.extend(
                labels
                    .iter()
                    .map(|(key, value)| (key.clone(), json!(value))),
            );
        }
    }

    /// Adds the tolerations that the template does not have.
    pub(super) fn add_tolerations(&mut self, tolerations: &[Toleration]) {
        if tolerations.is_empty() {
            return;
        }
        let Some(own) = list_in(&mut self.0, "tolerations") else {
            return;
        };
        for toleration in tolerations.iter().map(|toleration| json!(toleration)) {
            if !own.contains(&toleration) {
                own.push(toleration);
            }
        }
    }

    /// The API server turns an empty policy into `Always`, and the pod would never end.
    pub(super) fn default_restart_policy(&mut self) {
        if is_empty(self.0.get("restartPolicy")) {
            self.0.insert("restartPolicy".to_owned(), json!("Never"));
        }
    }

    /// Has the kubelet store the last log lines of a failed main container in the status of the
    /// pod.
    pub(super) fn default_termination_message_policy(&mut self) {
        if let Some(main) = self.main_container()
            && is_empty(main.get("terminationMessagePolicy"))
        {
            let policy = json!("FallbackToLogsOnError");
            main.insert("terminationMessagePolicy".to_owned(), policy);
        }
    }

    /// Sets the PriorityClass if the template has none.
    pub(super) fn default_priority_class(&mut self, class: &str) {
        if class.is_empty() || !is_empty(self.0.get("priorityClassName")) {
            return;
        }
        self.0.insert("priorityClassName".to_owned(), json!(class));
        // An exported template may have these values of another class, and the API server rejects
        // pods with values that do not fit their class.
        self.0.remove("priority");
        self.0.remove("preemptionPolicy");
    }

    /// Sets the scheduler if the template has none.
    pub(crate) fn default_scheduler(&mut self, name: &str) {
        if is_empty(self.0.get("schedulerName")) {
            self.0.insert("schedulerName".to_owned(), json!(name));
        }
    }

    /// Sets the group of Kubernetes' own scheduler.
    pub(crate) fn set_scheduling_group(&mut self, name: &str) {
        let group = json!({ "podGroupName": name });
        self.0.insert("schedulingGroup".to_owned(), group);
    }

    /// Sets the node affinity.
    pub(crate) fn set_node_affinity(&mut self, affinity: &Value) {
        if let Some(own) = object_in(&mut self.0, "affinity") {
            own.insert("nodeAffinity".to_owned(), affinity.clone());
        }
    }

    /// Adds a required term to the pod affinity.
    pub(crate) fn add_pod_affinity(&mut self, term: Value) {
        if let Some(affinity) = object_in(&mut self.0, "affinity")
            && let Some(affinity) = object_in(affinity, "podAffinity")
            && let Some(terms) = list_in(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
        {
            terms.push(term);
        }
    }

    /// Sets the number of a named port. If no container has the port, it is added to the main
    /// container, where an unnamed port of this number gets the name.
    pub(super) fn set_port(&mut self, name: &str, number: i32) {
        let containers = list_in(&mut self.0, "containers").into_iter().flatten();
        let ports = containers.filter_map(|container| container.get_mut("ports")?.as_array_mut());
        if let Some(port) = ports.flatten().find(|port| port["name"] == name) {
            let old = port["containerPort"].as_i64();
            // Move the host port by the same offset: with `hostNetwork` both must be equal.
            if let (Some(host), Some(old)) = (port["hostPort"].as_i64(), old)
                && host != 0
            {
                port["hostPort"] = json!(host + i64::from(number) - old);
            }
            port["containerPort"] = json!(number);
            // An unnamed port with the new number is a duplicate.
            if old != Some(number.into())
                && let Some(ports) = self
                    .main_container()
                    .and_then(|main| list_in(main, "ports"))
            {
                ports.retain(|port| !is_unnamed(port, number));
            }
            return;
        }
        let Some(ports) = self
            .main_container()
            .and_then(|main| list_in(main, "ports"))
        else {
            return;
        };
        if let Some(port) = ports.iter_mut().find(|port| is_unnamed(port, number)) {
            port["name"] = json!(name);
        } else {
            ports.push(json!({"name": name, "containerPort": number}));
        }
    }

    /// Edits requests and limits of the main container.
    pub(super) fn edit_main_resources(&mut self, edit: impl FnOnce(&mut ResourceRequirements)) {
        let Some(main) = self.main_container() else {
            return;
        };
        let mut resources = main.get("resources").cloned().unwrap_or_else(|| json!({}));
        let mut known = ResourceRequirements {
            limits: Option::deserialize(&resources["limits"]).unwrap_or_default(),
            requests: Option::deserialize(&resources["requests"]).unwrap_or_default(),
            ..ResourceRequirements::default()
        };
        edit(&mut known);
        for (name, list) in [("limits", known.limits), ("requests", known.requests)] {
            if let Some(list) = list {
                resources[name] = json!(list);
            }
        }
        main.insert("resources".to_owned(), resources);
    }

    /// Adds variables to all containers. They come first: entries of users can refer to them and
    /// override them, because the last value of a name wins.
    pub(super) fn prepend_env(&mut self, env: &[EnvVar]) {
        for name in ["initContainers", "containers"] {
            let containers = self.0.get_mut(name).and_then(Value::as_array_mut);
            let containers = containers.into_iter().flatten();
            for container in containers.filter_map(Value::as_object_mut) {
                if let Some(own) = list_in(container, "env") {
                    own.splice(0..0, env.iter().map(|variable| json!(variable)));
                }
            }
        }
    }

    fn main_container(&mut self) -> Option<&mut Map<String, Value>> {
        list_in(&mut self.0, "containers")?
            .iter_mut()
            .find(|container| container["name"] == names::MAIN_CONTAINER)?
            .as_object_mut()
    }
}

/// The object of this name, which is created if it is not set. `None` if it is no object.
fn object_in<'a>(
    object: &'a mut Map<String, Value>,
    name: &str,
) -> Option<&'a mut Map<String, Value>> {
    let field = object.entry(name).or_insert(Value::Null);
    if field.is_null() {
        *field = json!({});
    }
    field.as_object_mut()
}

/// The list of this name, which is created if it is not set. `None` if it is no list.
fn list_in<'a>(object: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Vec<Value>> {
    let list = object.entry(name).or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    list.as_array_mut()
}

fn is_empty(text: Option<&Value>) -> bool {
    text.is_none_or(|text| text.is_null() || text == "")
}

/// Whether this is an unnamed TCP port with this number.
fn is_unnamed(port: &Value, number: i32) -> bool {
    let protocol = port.get("protocol");
    port["containerPort"] == number
        && is_empty(port.get("name"))
        && (is_empty(protocol) || protocol == Some(&json!("TCP")))
}
