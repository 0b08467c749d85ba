use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::ResourceRequirements,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{Condition, MicroTime, Time},
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ConditionType, Role, is_condition_true, quantity};

/// The observed state of a job. Only the orchestrator writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DIJobStatus {
    /// The `metadata.generation` of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Current phase of the job: Created, Running, Succeeded, Failed, Unknown or Suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Most important reason for the current state, one CamelCase word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time when the coordinator was first created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Time when the job ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Conditions of the types Created, Running, Succeeded, Failed, Suspended and ReplicasReady.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Number of pods by role (Coordinator, Collector, Learner, Aggregator, DDPLearner) and state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replica_status: BTreeMap<String, ReplicaCounts>,
    /// One entry for each replica that the job should have or is removing. An entry is stored
    /// before its pod is created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<PlanEntry>,
    /// Recent requests to the replica endpoint that changed the plan. A repeated request gets the
    /// same answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestRecord>,
    /// Number of coordinator restarts that count against backoffLimit.
    #[serde(default)]
    pub restarts: i32,
    /// UID of the coordinator pod whose exit is ignored: after a failure that is retried, a suspension
    /// or a restart request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_coordinator: Option<String>,
    /// State of the coordinator pod and of its restart backoff.
    #[serde(default, skip_serializing_if = "CoordinatorStatus::is_empty")]
    pub coordinator: CoordinatorStatus,
    /// Number of collectors in the plan, without those that are being removed.
    #[serde(default)]
    pub collectors: i32,
    /// Number of learners in the plan, without those that are being removed.
    #[serde(default)]
    pub learners: i32,
    /// Ready and planned collectors, as 2/3; for display only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collectors_ready: Option<String>,
    /// Ready and planned learners, as 2/3; for display only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learners_ready: Option<String>,
    /// Label selector of the collectors, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

impl DIJobStatus {
    /// Whether the job has ended, by its phase or a condition. An ended job never runs again.
    pub fn has_ended(&self) -> bool {
        self.phase.is_some_and(Phase::is_terminal)
            || is_condition_true(&self.conditions, ConditionType::Succeeded)
            || is_condition_true(&self.conditions, ConditionType::Failed)
    }
}

/// State of the coordinator pod and of its restart backoff.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoordinatorStatus {
    /// UID of the current pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Number of pods in a row that were lost shortly after their start; the backoff grows with it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: i32,
    /// Earliest time at which the next pod is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
}

impl CoordinatorStatus {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Record of a request to the replica endpoint that changed the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestRecord {
    /// Kind of the request.
    pub kind: RequestKind,
    /// `Idempotency-Key` of the request, or a key that the endpoint generated.
    pub key: String,
    /// Requested counts and resources. Another request with the same key is rejected. Empty in
    /// entries of older versions.
    #[serde(default, rename = "asked", skip_serializing_if = "String::is_empty")]
    pub request_summary: String,
    /// Time at which the request was recorded.
    pub at: Time,
    /// Names of the replicas that the request removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<String>,
}

/// Kind of a request to the replica endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RequestKind {
    /// Add replicas.
    Add,
    /// Remove replicas.
    Remove,
}

/// Phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// The coordinator has been created.
    Created,
    /// The coordinator is running.
    Running,
    /// The coordinator exited with code 0.
    Succeeded,
    /// The coordinator failed and is not restarted, or the job cannot run.
    Failed,
    /// The coordinator's node does not respond.
    Unknown,
    /// The job is suspended.
    Suspended,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 6] = [
        Self::Created,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Unknown,
        Self::Suspended,
    ];

    /// Whether the job has ended; no other phase follows.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// The phase as it appears in `status.phase`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
            Self::Suspended => "Suspended",
        }
    }
}

/// Number of pods of one role by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaCounts {
    /// Number of running pods.
    #[serde(default)]
    pub active: i32,
    /// Number of pods that ended successfully.
    #[serde(default)]
    pub succeeded: i32,
    /// Number of failed pods.
    #[serde(default)]
    pub failed: i32,
    /// Number of pods that are not running yet.
    #[serde(default)]
    pub pending: i32,
}

/// Plan entry of one replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanEntry {
    /// Name of the replica's pod and service.
    pub name: String,
    /// Role of the replica.
    #[serde(rename = "type")]
    pub role: Role,
    /// Whether the spec declares the replica or the coordinator requested it.
    pub origin: Origin,
    /// Index within the role, the lowest unused one at planning time. A replacement keeps it.
    pub index: i32,
    /// UID of the replica's pod once it is created. A pod that disappears later is replaced under a
    /// new name.
    // See docs/decisions/0004.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Whether the replica is wanted, being removed or replaced. Default: Wanted.
    #[serde(default, skip_serializing_if = "EntryState::is_wanted")]
    pub state: EntryState,
    /// Name of the replica group of a declared replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Resources that differ from the template. An aggregator has those of its learner group, a ddp
    /// learner its share of them.
    #[serde(default, skip_serializing_if = "ReplicaResources::is_empty")]
    pub resources: ReplicaResources,
    /// Port of an aggregator once it is known. It does not follow changes of the
    /// `AggregatorConfig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// Ranks of a ddp learner within its learner group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ddp: Option<Ddp>,
    /// Name of the replica that this one replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// Number of replacements in a row for the same index; the backoff grows with it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: i32,
    /// Time when the entry was planned.
    // In microseconds, because the endpoint measures a grace period of two seconds from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_at: Option<MicroTime>,
    /// Earliest time at which the pod is created. Replacements that fail repeatedly wait longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// The coordinator instance that requested the replica, as `pod UID/restart count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<String>,
    /// `Idempotency-Key` of the request that planned the replica, or a key that the endpoint
    /// generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_key: Option<String>,
    /// Whether this entry replaces a replica that the coordinator reported as failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reported: bool,
    /// Whether the pod ended successfully. No other pod is created for this entry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub done: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes references
fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl PlanEntry {
    /// Creates the entry of a wanted replica with default values.
    pub fn new(name: String, role: Role, origin: Origin, index: i32) -> Self {
        Self {
            name,
            role,
            origin,
            index,
            uid: None,
            state: EntryState::Wanted,
            group: None,
            resources: ReplicaResources::default(),
            port: None,
            ddp: None,
            replaces: None,
            attempt: 0,
            planned_at: None,
            not_before: None,
            claimed_by: None,
            request_key: None,
            reported: false,
            done: false,
        }
    }

    /// Whether the replica should exist.
    pub fn is_wanted(&self) -> bool {
        self.state.is_wanted()
    }

    /// Earliest time at which the pod may be created: the later of `planned_at` and `not_before`.
    pub fn earliest_creation(&self) -> Option<Timestamp> {
        let planned = self.planned_at.as_ref().map(|time| time.0);
        planned.max(self.not_before.as_ref().map(|time| time.0))
    }

    /// GPU count of the entry's resources, which is the number of processes of a ddp learner.
    pub fn gpu_count(&self) -> i32 {
        let gpus = self.resources.gpus.as_ref();
        gpus.and_then(|gpus| quantity::parse_count(&gpus.0))
            .unwrap_or(0)
    }
}

/// Ranks of a ddp learner within its learner group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ddp {
    /// Name of the aggregator of the learner group.
    pub aggregator: String,
    /// Number of processes of the learner group.
    pub world_size: i32,
    /// Rank of this ddp learner's first process.
    pub start_rank: i32,
    /// Name of the ddp learner that is the rendezvous host. Unset for the rendezvous host itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
}

/// Who asked for a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Origin {
    /// The spec declares it.
    Declared,
    /// The coordinator requested it at run time.
    Requested,
}

/// State of a plan entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum EntryState {
    /// The replica should exist.
    #[default]
    Wanted,
    /// The replica is being removed. The entry is dropped when its pod and service no longer exist.
    Removing,
    /// Another entry replaced it. An ended pod is kept for its logs until the replacement ends too.
    Replaced,
}

impl EntryState {
    /// Whether the replica should exist.
    #[allow(clippy::trivially_copy_pass_by_ref)] // serde passes references
    pub fn is_wanted(&self) -> bool {
        matches!(self, Self::Wanted)
    }
}

/// Resources of a replica that differ from the template, as requests and limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaResources {
    /// CPUs (`cpu`), a quantity. Default: as in the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Quantity>,
    /// GPUs (`nvidia.com/gpu`), an integer. Default: as in the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Quantity>,
    /// Memory (`memory`), a quantity in bytes. Default: as in the template.
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
