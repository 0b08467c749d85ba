use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pod_template::PodTemplate;

/// Desired state of the AggregatorConfig.
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
    doc = "Pod template of aggregators, one per learner group (a learner with more than one GPU). Only the object named aggregator-config is used: the one in the job's namespace, else the one in di-system.",
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct AggregatorConfigSpec {
    /// The aggregators of learner groups. Required.
    pub aggregator: AggregatorSpec,
}

/// The aggregator pods of an `AggregatorConfig`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AggregatorSpec {
    /// Pod template of each aggregator. The main container must be named di-container.
    pub template: PodTemplate,
}
