//! Gang scheduling of the pods of a job. See docs/decisions/0038.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the scheduler places the pods of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingSpec {
    /// The pods that start together or not at all: the coordinator, and a minimum of collectors and
    /// learners. All other pods are created once each of these has a node. Needs an orchestrator
    /// with the flag --gang-scheduler; otherwise the job runs without a gang. Default: unset, each
    /// pod starts alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangSpec>,
    /// Queue of Volcano, YuniKorn or KAI, not of Kueue. Only for jobs with a gang. Default: empty,
    /// the default queue of the scheduler.
    #[serde(
        default,
        deserialize_with = "crate::dijob::null_as_empty",
        skip_serializing_if = "String::is_empty"
    )]
    #[schemars(length(max = 63))]
    pub queue: String,
    /// Node label, such as topology.kubernetes.io/rack. The pods that start together run on nodes
    /// with the same value of this label. Only for jobs with a gang. Default: empty, any nodes.
    #[serde(
        default,
        deserialize_with = "crate::dijob::null_as_empty",
        skip_serializing_if = "String::is_empty"
    )]
    #[schemars(length(max = 316))]
    pub topology_key: String,
}

/// The pods that start together or not at all. The coordinator is always one of them; replicas that
/// it requests never are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GangSpec {
    /// Number of declared collectors that start together with the coordinator. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::names::MAX_REPLICAS))]
    pub min_collectors: Option<i32>,
    /// Number of declared learners that start together with the coordinator. A learner group counts
    /// as one, with all its pods. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::names::MAX_REPLICAS))]
    pub min_learners: Option<i32>,
}

/// The gang of the job. Unset while the job has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingStatus {
    /// Name of the group that the scheduler places.
    pub group: String,
    /// Number of pods that start together. It only falls once they are placed.
    pub min_member: i32,
    /// Whether all pods that start together have had nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub placed: bool,
}
