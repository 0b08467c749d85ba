use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The pod of aggregators, which stand in front of the ddp learners of a logic learner.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "diengine.opendilab.org",
    version = "v1alpha2",
    kind = "AggregatorConfig",
    plural = "aggregatorconfigs",
    singular = "aggregatorconfig",
    shortname = "agconfig",
    namespaced,
    derive = "PartialEq",
    doc = "The pod of aggregators, which stand in front of the ddp learners of a logic learner.",
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct AggregatorConfigSpec {
    /// The aggregator.
    pub aggregator: AggregatorSpec,
}

/// The aggregator of an `AggregatorConfig`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AggregatorSpec {
    /// Pod of each aggregator; its main container is di-container.
    pub template: PodTemplateSpec,
}
