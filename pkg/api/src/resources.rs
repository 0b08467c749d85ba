use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::ResourceRequirements, apimachinery::pkg::api::resource::Quantity,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::parse_nanos;

/// Resources of a replica that differ from the template, as requests and limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaResources {
    /// CPU request and limit (`cpu`), such as 2 or 500m. Default: as in the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Quantity>,
    /// Number of GPUs (`nvidia.com/gpu`), an integer. Default: as in the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Quantity>,
    /// Memory request and limit (`memory`), such as 4Gi. Default: as in the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
}

/// Resource name of GPUs.
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";

impl ReplicaResources {
    /// Whether no resource differs.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the set resources with their Kubernetes names.
    pub fn named_quantities(&self) -> impl Iterator<Item = (&'static str, &Quantity)> {
        [
            ("cpu", &self.cpus),
            (GPU_RESOURCE, &self.gpus),
            ("memory", &self.memory),
        ]
        .into_iter()
        .filter_map(|(name, quantity)| Some((name, quantity.as_ref()?)))
    }

    /// Overwrites requests and limits of `requirements` with the set resources.
    pub fn apply_to(&self, requirements: &mut ResourceRequirements) {
        for (name, quantity) in self.named_quantities() {
            for list in [&mut requirements.requests, &mut requirements.limits] {
                list.get_or_insert_default()
                    .insert(name.to_owned(), quantity.clone());
            }
        }
    }
}

/// Raises the memory of `requirements` to `memory`: the limit, and the request if it has no limit
/// or is equal to it. Memory that is not set remains unset.
pub fn raise_memory(requirements: &mut ResourceRequirements, memory: &Quantity) {
    let of = |list: &Option<BTreeMap<String, Quantity>>| list.as_ref()?.get("memory").cloned();
    let (request, limit) = (of(&requirements.requests), of(&requirements.limits));
    let has_own_request = limit.is_some() && request != limit;
    let requests = requirements.requests.as_mut().filter(|_| !has_own_request);
    for list in [requests, requirements.limits.as_mut()]
        .into_iter()
        .flatten()
    {
        if let Some(present) = list.get_mut("memory")
            && parse_nanos(&present.0) < parse_nanos(&memory.0)
        {
            present.clone_from(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn memory_is_raised_where_it_is_set() {
        for (before, after) in [
            (json!({}), json!({})),
            (
                json!({"limits": {"memory": "1Gi", "cpu": "1"}}),
                json!({"limits": {"memory": "2Gi", "cpu": "1"}}),
            ),
            (
                json!({"requests": {"memory": "1Gi"}}),
                json!({"requests": {"memory": "2Gi"}}),
            ),
            (
                json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}),
                json!({"requests": {"memory": "2Gi"}, "limits": {"memory": "2Gi"}}),
            ),
            (
                json!({"requests": {"memory": "1Mi"}, "limits": {"memory": "1Gi"}}),
                json!({"requests": {"memory": "1Mi"}, "limits": {"memory": "2Gi"}}),
            ),
            (
                json!({"limits": {"memory": "3Gi"}}),
                json!({"limits": {"memory": "3Gi"}}),
            ),
        ] {
            let mut requirements = serde_json::from_value(before).unwrap();
            raise_memory(&mut requirements, &Quantity("2Gi".to_owned()));
            assert_eq!(serde_json::to_value(&requirements).unwrap(), after);
        }
    }
}
