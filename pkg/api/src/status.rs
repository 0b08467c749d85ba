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

use crate::{ConditionType, Role, is_true, quantity};

/// What is known of a job, written by the orchestrator only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DIJobStatus {
    /// Generation of the spec that this status tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where the job is in its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Why, in one word: the worst that a user must know of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the coordinator was first created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the job ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Created, Running, Succeeded, Failed, Suspended and ReplicasReady.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Pods by role (Coordinator, Collector, Learner, Aggregator, DDPLearner) and state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replica_status: BTreeMap<String, ReplicaCounts>,
    /// Every replica that the job should have, or is letting go; a name stands here before its pod is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<PlanEntry>,
    /// Requests to the replica endpoint that changed the plan lately: one that comes again is answered as before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<AnsweredRequest>,
    /// Coordinator starts counted against backoffLimit.
    #[serde(default)]
    pub restarts: i32,
    /// UID of the coordinator that was given up last, because it failed or the job is held: how it ends is not how the job ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_coordinator: Option<String>,
    /// The coordinator's pod, and when the next one may be made.
    #[serde(default, skip_serializing_if = "CoordinatorStatus::is_empty")]
    pub coordinator: CoordinatorStatus,
    /// Collectors that the plan wants.
    #[serde(default)]
    pub collectors: i32,
    /// Learners that the plan wants.
    #[serde(default)]
    pub learners: i32,
    /// Collectors ready of those wanted, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collectors_ready: Option<String>,
    /// Learners ready of those wanted, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learners_ready: Option<String>,
    /// Label selector of the collectors, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

impl DIJobStatus {
    /// Whether the job has ended, as its phase or a condition tells; once it has, it never runs again.
    pub fn has_ended(&self) -> bool {
        self.phase.is_some_and(Phase::is_terminal)
            || is_true(&self.conditions, ConditionType::Succeeded)
            || is_true(&self.conditions, ConditionType::Failed)
    }
}

/// The coordinator's pod, and when the next one may be made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoordinatorStatus {
    /// UID of the pod, until it is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// How often in a row a pod was lost that had not run for long.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: i32,
    /// The next pod is not made before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
}

impl CoordinatorStatus {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A request to the replica endpoint that changed the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnsweredRequest {
    /// What it asked for.
    pub kind: RequestKind,
    /// Its Idempotency-Key, or what the endpoint gave it instead.
    pub key: String,
    /// How many of each role it asked for, and with what resources: who asks for something else needs another key. Older versions noted none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub asked: String,
    /// When it was answered.
    pub at: Time,
    /// Names of the replicas that it let go of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<String>,
}

/// What a request to the replica endpoint asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RequestKind {
    /// More replicas.
    Add,
    /// Fewer.
    Remove,
}

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// The coordinator has been created.
    Created,
    /// The coordinator runs.
    Running,
    /// The coordinator ended with exit code 0.
    Succeeded,
    /// The coordinator failed for good, or the job could not be run.
    Failed,
    /// The coordinator's node is lost.
    Unknown,
    /// The job is held.
    Suspended,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Created,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Unknown,
        Self::Suspended,
    ];

    /// Whether the job has ended: no later phase can follow.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// As it is written.
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

/// Pods of one role by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaCounts {
    /// Running.
    #[serde(default)]
    pub active: i32,
    /// Ended with success.
    #[serde(default)]
    pub succeeded: i32,
    /// Ended with failure.
    #[serde(default)]
    pub failed: i32,
    /// Not running yet.
    #[serde(default)]
    pub pending: i32,
}

/// One replica of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanEntry {
    /// Name of its pod and service.
    pub name: String,
    /// What it does.
    #[serde(rename = "type")]
    pub role: Role,
    /// Who wants it.
    pub origin: Origin,
    /// Number within its role, the lowest free when it was planned; a replacement keeps it.
    pub index: i32,
    /// UID of its pod, once it was made: one that is gone since is replaced, not made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// What is to become of it.
    #[serde(default, skip_serializing_if = "EntryState::is_wanted")]
    pub state: EntryState,
    /// The declared group that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Resources that differ from the template's; an aggregator's are those of its logic learner, a ddp learner's its share of them.
    #[serde(default, skip_serializing_if = "ReplicaResources::is_empty")]
    pub resources: ReplicaResources,
    /// Port of an aggregator, once it is known; it never changes, whatever becomes of the `AggregatorConfig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// Place of a ddp learner in its logic learner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ddp: Option<Ddp>,
    /// The replica whose place it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// How often its place was taken over in a row.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: i32,
    /// When it was planned.
    // To the microsecond: the endpoint counts two seconds from then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_at: Option<MicroTime>,
    /// Its pod is made no earlier than this: replacements that fail again and again wait longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// The incarnation of the coordinator that requested it, as `pod UID/restart count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<String>,
    /// `Idempotency-Key` of the request that it was planned for, or what the endpoint gave it instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_key: Option<String>,
    /// Whether it takes the place of one that was reported to the endpoint as failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reported: bool,
    /// Whether its pod ended with success: its work is done, and no other pod is made for it, whatever becomes of that one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub done: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands out references
fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl PlanEntry {
    /// A wanted replica of which nothing else is said.
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

    /// Whether the plan wants this replica to be there.
    pub fn is_wanted(&self) -> bool {
        self.state.is_wanted()
    }

    /// From when on its pod may be made: it is planned, and has no wait before it.
    pub fn may_be_made_from(&self) -> Option<Timestamp> {
        let planned = self.planned_at.as_ref().map(|time| time.0);
        planned.max(self.not_before.as_ref().map(|time| time.0))
    }

    /// GPUs that it has of its own: as many processes a ddp learner runs.
    pub fn gpus(&self) -> i32 {
        let gpus = self.resources.gpus.as_ref();
        gpus.and_then(|gpus| quantity::whole(&gpus.0)).unwrap_or(0)
    }
}

/// Place of a ddp learner in its logic learner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ddp {
    /// Its aggregator.
    pub aggregator: String,
    /// Processes of the logic learner.
    pub world_size: i32,
    /// Rank of its first process.
    pub start_rank: i32,
    /// The ddp learner that the processes meet at; none for that one itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
}

/// Who wants a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Origin {
    /// The spec.
    Declared,
    /// The coordinator, at run time.
    Requested,
}

/// What is to become of a planned replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum EntryState {
    /// It is to be there.
    #[default]
    Wanted,
    /// It is to go: dropped from the plan once its pod and service are gone.
    Removing,
    /// Another entry took its place; if its pod has ended, it stays for its logs until that one ends too.
    Replaced,
}

impl EntryState {
    /// Whether the replica is to be there.
    #[allow(clippy::trivially_copy_pass_by_ref)] // serde hands out references
    pub fn is_wanted(&self) -> bool {
        matches!(self, Self::Wanted)
    }
}

/// Resources of a replica that differ from its template's; requests and limits alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaResources {
    /// CPUs, as a quantity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Quantity>,
    /// GPUs (`nvidia.com/gpu`), a whole number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Quantity>,
    /// Memory, as a quantity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
}

/// Resource name of GPUs.
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";

impl ReplicaResources {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The resources as Kubernetes names them.
    pub fn quantities(&self) -> impl Iterator<Item = (&'static str, &Quantity)> {
        [
            ("cpu", &self.cpus),
            (GPU_RESOURCE, &self.gpus),
            ("memory", &self.memory),
        ]
        .into_iter()
        .filter_map(|(name, quantity)| Some((name, quantity.as_ref()?)))
    }

    /// Writes the resources over `requirements`, requests and limits alike.
    pub fn apply_to(&self, requirements: &mut ResourceRequirements) {
        for (name, quantity) in self.quantities() {
            for list in [&mut requirements.requests, &mut requirements.limits] {
                list.get_or_insert_default()
                    .insert(name.to_owned(), quantity.clone());
            }
        }
    }
}
