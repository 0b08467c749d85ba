use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, MicroTime, Time},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    conditions::{ConditionType, is_condition_true},
    failure_record::FailureRecord,
    phase::Phase,
    quantity,
    queueing::{QueueState, QueueingStatus},
    resources::ReplicaResources,
    role::Role,
    scheduling::SchedulingStatus,
    unit::UnitPlace,
};

/// The observed state of a job. Only the orchestrator writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DIJobStatus {
    /// The `metadata.generation` of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Phase of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Reason, in CamelCase, of the most severe current problem, or of the job's end. Unset if
    /// there is no problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time when the coordinator pod was created, or created again after the last resume. Unset
    /// while suspended. activeDeadlineSeconds counts from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Time when the job ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Conditions of the job. ReplicasReady is True while the coordinator and every planned replica
    /// are ready; its reason and message name the most severe problem. Other types: Created,
    /// Running, Succeeded, Failed, Suspended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Number of pods by role (Coordinator, Collector, Learner, Aggregator, DDPLearner) and state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replica_status: BTreeMap<String, ReplicaCounts>,
    /// One entry for each replica that the job should have or is removing. An entry is stored
    /// before its pod is created.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<PlanEntry>,
    /// Number of changes of the set of listed replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub membership_generation: Option<i64>,
    /// The last requests to the replica endpoint that changed the plan, kept for 10 minutes. A
    /// repeated request gets the same response.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestRecord>,
    /// The last failures of pods, newest first, at most ten. They remain after the pods are
    /// deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureRecord>,
    /// What Kueue admitted. Unset while the job waits in its queue, and for jobs without a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queueing: Option<QueueingStatus>,
    /// The gang: the pods that start together. Unset while the job has no gang.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<SchedulingStatus>,
    /// Number of coordinator restarts that count against backoffLimit.
    #[serde(default)]
    pub restarts: i32,
    /// UID of the last coordinator pod that failed, was restarted on request, or was deleted by a
    /// suspension. Its exit does not end the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_coordinator: Option<String>,
    /// State of the coordinator pod and of its restart backoff.
    #[serde(default, skip_serializing_if = "CoordinatorStatus::is_empty")]
    pub coordinator: CoordinatorStatus,
    /// Number of wanted collectors in the plan, declared (including groups) and requested.
    #[serde(default)]
    pub collectors: i32,
    /// Number of wanted learners in the plan, declared (including groups) and requested; a unit or
    /// learner group counts as one.
    #[serde(default)]
    pub learners: i32,
    /// Ready and wanted collectors, such as 2/3 or 1/3 (2 done); for display only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collectors_ready: Option<String>,
    /// Ready and wanted learners, such as 2/3 or 1/3 (2 done); for display only.
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
    /// UID of the current coordinator pod. Unset until the next pod is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Number of consecutive coordinator pods that ended or were deleted. A pod that ran for 10
    /// minutes resets it. The first restart is immediate; the delay then doubles from 10 s to 5
    /// min.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: i32,
    /// Earliest time at which the next pod is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// Number of failures that each failure rule with a limit has matched.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rule_matches: BTreeMap<String, i32>,
    /// Memory of di-container, if a failure rule has increased it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
}

impl CoordinatorStatus {
    /// Resets the pod and its delays, so that the next pod is created at once.
    pub fn reset_pod(&mut self) {
        (self.uid, self.attempt, self.not_before) = (None, 0, None);
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Record of a request to the replica endpoint that changed the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestRecord {
    /// Whether the request added or removed replicas.
    pub kind: RequestKind,
    /// `Idempotency-Key` of the request, or a key that the endpoint generated.
    pub key: String,
    /// Requested counts and resources. A request with the same key but other counts or resources is
    /// rejected. Empty in entries of older versions.
    #[serde(default, rename = "asked", skip_serializing_if = "String::is_empty")]
    pub request_summary: String,
    /// Time at which the request was recorded.
    pub at: Time,
    /// Names of the replicas that the request removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<String>,
}

/// Whether a request to the replica endpoint added or removed replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RequestKind {
    /// Add replicas.
    Add,
    /// Remove replicas.
    Remove,
}

/// Number of pods of one role by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaCounts {
    /// Number of running pods. Unlike in a Kubernetes Job, pending pods are not counted.
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
    /// Index within the role, the lowest unused one at planning time. A replacement keeps it. All
    /// pods of a unit have the same one.
    pub index: i32,
    /// UID of the replica's pod, once it is created. Unset while the job is suspended. If this pod
    /// disappears, the replica is replaced under a new name.
    // See docs/decisions/0004.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Whether the replica is wanted, being removed or replaced. Default: Wanted.
    #[serde(default, skip_serializing_if = "EntryState::is_wanted")]
    pub state: EntryState,
    /// Name of the replica group of a declared replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Resources that differ from the template. An aggregator entry has the resources of the whole
    /// learner group, a ddp learner its share.
    #[serde(default, skip_serializing_if = "ReplicaResources::is_empty")]
    pub resources: ReplicaResources,
    /// Port of the aggregator, copied once from the AggregatorConfig. Later changes of the
    /// AggregatorConfig do not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// Ranks of a ddp learner within its learner group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ddp: Option<Ddp>,
    /// Place of the pod in its unit. Unset if the replica is no unit.
    // See docs/decisions/0040.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<UnitPlace>,
    /// Name of the replica that this one replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// Number of consecutive replacements for this index. A pod that ran for 10 minutes resets it.
    /// The first replacement is immediate; the delay then doubles from 10 s to 5 min.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: i32,
    /// Time when the entry was planned.
    // In microseconds, because the endpoint measures a grace period of two seconds from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_at: Option<MicroTime>,
    /// Earliest time at which the pod is created. Replacements that fail repeatedly wait longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// The coordinator instance that requested or claimed the replica: `pod UID/restart count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<String>,
    /// `Idempotency-Key` of the request that planned the replica, or a key that the endpoint
    /// generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_key: Option<String>,
    /// Whether the coordinator reported the replaced replica as failed, and the failure rules have
    /// not been applied yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reported: bool,
    /// Whether the pod succeeded, or a failure rule counts it as succeeded. No other pod is created
    /// for this entry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub done: bool,
    /// Whether the replica is listed, in the generation status.membershipGeneration of the set.
    // See docs/decisions/0039.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub listed: bool,
    /// Number of failures of this index that each failure rule with a limit has matched. Those of a
    /// learner group are in the entry of its aggregator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rule_matches: BTreeMap<String, i32>,
    /// Memory of di-container, if a failure rule has increased it; of each ddp learner in the entry
    /// of its aggregator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
    /// Whether the replica, which has quota of its own, may run. Unset for replicas that were
    /// admitted together with the coordinator, and without a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueState>,
    /// Position in status.queueing.placements of what Kueue adds to the pod. Unset until the
    /// replica is admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<i32>,
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
            unit: None,
            replaces: None,
            attempt: 0,
            planned_at: None,
            not_before: None,
            claimed_by: None,
            request_key: None,
            reported: false,
            done: false,
            listed: false,
            rule_matches: BTreeMap::new(),
            memory: None,
            queue: None,
            placement: None,
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
