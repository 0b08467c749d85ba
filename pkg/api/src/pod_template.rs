use k8s_openapi::{api::core::v1::PodTemplateSpec, apimachinery::pkg::api::resource::Quantity};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::names::{MAIN_CONTAINER, PORT_NAME};

/// A pod template as its author wrote it.
///
/// It keeps fields that this program does not know, so that a new field of Kubernetes reaches the
/// pods on the day the cluster supports it. Default: empty. See docs/decisions/0033.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodTemplate(pub Map<String, Value>);

impl PodTemplate {
    /// The fields that this program knows.
    ///
    /// # Errors
    /// When a field has a wrong type.
    pub fn decode(&self) -> serde_json::Result<PodTemplateSpec> {
        PodTemplateSpec::deserialize(&self.0)
    }

    /// A part of the template, such as `metadata`. `Null` if it is not set.
    pub fn part(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }

    /// The number of the port `di-port`.
    pub fn named_port(&self) -> Option<i32> {
        let ports = self
            .containers()
            .flat_map(|container| items(&container["ports"]));
        let mut named = ports.filter(|port| port["name"] == PORT_NAME);
        i32::try_from(named.next()?["containerPort"].as_i64()?).ok()
    }

    /// The limit of the main container for a resource, or else its request.
    pub fn main_quantity(&self, resource: &str) -> Option<Quantity> {
        let mut containers = self.containers();
        let main = containers.find(|container| container["name"] == MAIN_CONTAINER)?;
        ["limits", "requests"]
            .into_iter()
            .find_map(|list| Quantity::deserialize(&main["resources"][list][resource]).ok())
    }

    fn containers(&self) -> impl Iterator<Item = &Value> {
        items(&self.part("spec")["containers"])
    }
}

impl From<Map<String, Value>> for PodTemplate {
    fn from(fields: Map<String, Value>) -> Self {
        Self(fields)
    }
}

/// The items of a list; none if it is not a list.
fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

impl JsonSchema for PodTemplate {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        PodTemplateSpec::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        PodTemplateSpec::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_are_kept() {
        let written = json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {"notYet": 1, "containers": [{"name": "di-container", "image": "i", "notYet": {"a": [1]}}]},
        });
        let template = PodTemplate::deserialize(&written).unwrap();
        assert_eq!(serde_json::to_value(&template).unwrap(), written);
        let known = template.decode().unwrap().spec.unwrap();
        assert_eq!(known.containers[0].image.as_deref(), Some("i"));
    }

    #[test]
    fn port_and_gpus_are_read_from_containers() {
        let template = |containers: Value| {
            PodTemplate::deserialize(json!({"spec": {"containers": containers}})).unwrap()
        };
        let side = json!({"name": "side", "ports": [{"name": "di-port", "containerPort": 7}]});
        let main = json!({"name": "di-container", "resources": {"requests": {"gpu": 2}, "limits": {"cpu": "1"}}});
        let both = template(json!([side, main]));
        assert_eq!(both.named_port(), Some(7));
        let gpus = both.main_quantity("gpu").map(|gpus| gpus.0);
        assert_eq!(gpus.as_deref(), Some("2"));
        for odd in [
            json!(7),
            json!([7]),
            json!([{"ports": 7, "resources": 7}]),
            Value::Null,
        ] {
            let odd = template(odd);
            assert_eq!((odd.named_port(), odd.main_quantity("gpu")), (None, None));
        }
    }
}
