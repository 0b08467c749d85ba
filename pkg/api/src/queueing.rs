//! Queueing of a job by [Kueue](https://kueue.sigs.k8s.io). See docs/decisions/0037.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a job in a queue of Kueue gets quota. Only for jobs with the label
/// `kueue.x-k8s.io/queue-name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueingSpec {
    /// How replicas get quota that are added after the job was admitted. Default: PerReplica.
    #[serde(default)]
    pub elastic: ElasticQueueing,
    /// WorkloadPriorityClass of the replicas with quota of their own. Default: that of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub elastic_priority_class: Option<String>,
}

/// How replicas get quota that are added after the job was admitted: requested replicas, and those
/// of an increased count. PerReplica: each waits for quota of its own, and can be preempted alone.
/// Whole: they wait until the job is admitted again. None: as Whole, and the replica endpoint
/// rejects requests for replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ElasticQueueing {
    /// Each replica has quota of its own.
    #[default]
    PerReplica,
    /// They wait for the next admission of the job.
    Whole,
    /// As `Whole`, and the replica endpoint rejects requests.
    None,
}

/// What Kueue admitted. Unset while the job waits in its queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueingStatus {
    /// Name of the Workload of the coordinator and the declared replicas.
    pub workload: String,
    /// ClusterQueue that admitted it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster_queue: String,
    /// What Kueue adds to pods, each combination once. The first one is that of the coordinator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placements: Vec<Placement>,
    /// Numbers of pods by pod set whose quota is returned, because their replicas are done or
    /// removed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reclaimed: BTreeMap<String, i32>,
}

/// What Kueue adds to the pods of one pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Name of the pod set.
    pub pod_set: String,
    /// Hash of the template of the pods that were admitted. Pods with another one need other quota.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub template: String,
    /// Names of the flavors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flavors: Vec<String>,
    /// Node labels of the flavors, and of admission checks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations of the flavors, and of admission checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Labels that name the pod set and its queues, and those of admission checks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of admission checks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Whether a replica with quota of its own may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum QueueState {
    /// It waits for quota.
    Waiting,
    /// It has quota.
    Admitted,
}
