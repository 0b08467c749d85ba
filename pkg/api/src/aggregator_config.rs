use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Template of the aggregator pods, one for each learner with several GPUs.
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
    doc = "Template of the aggregator pods, one for each learner with several GPUs.",
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct AggregatorConfigSpec {
    /// Describes the aggregator pods.
    pub aggregator: AggregatorSpec,
}

/// The aggregator pods of an `AggregatorConfig`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AggregatorSpec {
    /// Pod template of each aggregator. The main container must be named di-container.
    pub template: PodTemplateSpec,
}
