use k8s_openapi::{
    api::core::v1::ResourceRequirements, apimachinery::pkg::api::resource::Quantity,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
