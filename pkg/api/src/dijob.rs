use k8s_openapi::api::core::v1::Volume;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    failure_rules::FailureRule,
    names,
    pod_template::PodTemplate,
    quantity,
    queueing::QueueingSpec,
    resources::{GPU_RESOURCE, ReplicaResources},
    role::Role,
    scheduling::SchedulingSpec,
    status::DIJobStatus,
    unit::UnitSpec,
};

/// Desired state of the job.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "diengine.opendilab.org",
    version = "v1alpha2",
    kind = "DIJob",
    plural = "dijobs",
    singular = "dijob",
    shortname = "dijob",
    namespaced,
    status = "DIJobStatus",
    derive = "PartialEq",
    doc = "A reinforcement-learning job: a coordinator, and the collectors and learners that it works with.",
    scale(
        spec_replicas_path = ".spec.collector.replicas",
        status_replicas_path = ".status.collectors",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Collectors",
        type_ = "string",
        json_path = ".status.collectorsReady"
    ),
    printcolumn(
        name = "Learners",
        type_ = "string",
        json_path = ".status.learnersReady"
    ),
    printcolumn(name = "Restarts", type_ = "integer", json_path = ".status.restarts"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.reason",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct DIJobSpec {
    /// Name of a set of jobs that this job belongs to, for information only: the orchestrator
    /// ignores it. Default: empty.
    #[serde(
        default,
        deserialize_with = "null_as_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub group: String,

    /// PriorityClass of every pod whose template names none. If it is set, `priority` and
    /// `preemptionPolicy` of such templates are ignored. Default: empty, the cluster's default
    /// class.
    #[serde(
        default,
        deserialize_with = "null_as_empty",
        skip_serializing_if = "String::is_empty"
    )]
    #[schemars(length(max = 253))]
    pub priority_class_name: String,

    /// Which pods are deleted when the job ends. None: no pod. Running: pods that have not
    /// finished, except the coordinator, which is stopped but kept for its logs. All: every pod.
    /// Services are always deleted. Default: Running.
    #[serde(default)]
    pub clean_pod_policy: CleanPodPolicy,

    /// Volumes added to every pod of the job; containers mount them by name. A volume of the same
    /// name in a template takes precedence. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,

    /// The coordinator schedules the training. If its container di-container exits with 0, the job
    /// succeeds; if it fails, it is restarted up to backoffLimit times, then the job fails.
    /// Required.
    pub coordinator: CoordinatorSpec,

    /// Collectors step environments and produce training data. If unset, the job has no collectors
    /// and the coordinator cannot request any. Default: unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<CollectorSpec>,

    /// Learners train the model. Without a unit, a learner with more than one GPU runs as a learner
    /// group: one aggregator (see AggregatorConfig) and one or more ddp learners. If unset, the
    /// coordinator cannot request learners. Default: unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learner: Option<LearnerSpec>,

    /// If true, the orchestrator deletes the job's pods and services and keeps status.plan, so that
    /// a resumed job gets the same replicas. Default: false.
    #[serde(default)]
    pub suspend: bool,

    /// Seconds, counted from status.startTime, after which the job fails. The count restarts when a
    /// suspended job is resumed. Minimum: 1. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,

    /// Seconds between the end of the job (status.completionTime) and its deletion with all its
    /// pods and services. 0 deletes it immediately. Default: never deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,

    /// Number of times a failed coordinator is restarted before the job fails. Evictions and other
    /// disruptions do not count. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub backoff_limit: i32,

    /// Rules for failures of pods, at most 20. The first rule that matches a failure is applied.
    /// Default: none; every failure counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub failure_rules: Vec<FailureRule>,

    /// If true, the last log lines of a failed container di-container are stored in
    /// status.failures, for everyone who may read the job. Set it to false if logs may contain
    /// secrets. Default: true.
    #[serde(default = "enabled")]
    pub failure_tails: bool,

    /// How the job gets quota from Kueue. Only for jobs with the label kueue.x-k8s.io/queue-name.
    /// Default: unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queueing: Option<QueueingSpec>,

    /// How the scheduler places the pods: a gang of pods that start together, the queue of the
    /// scheduler, and the nodes. Default: unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<SchedulingSpec>,
}

impl DIJob {
    /// Name of the LocalQueue of Kueue that the job waits in. `None` without the label
    /// `kueue.x-k8s.io/queue-name`.
    pub fn queue_name(&self) -> Option<&str> {
        let labels = self.metadata.labels.as_ref()?;
        let queue = labels.get(names::kueue::QUEUE_LABEL)?;
        (!queue.is_empty()).then_some(queue)
    }
}

fn enabled() -> bool {
    true
}

/// Reads null as an empty string, because the CRD schema allows null for strings.
pub(crate) fn null_as_empty<'de, D: Deserializer<'de>>(text: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(text)?.unwrap_or_default())
}

/// The coordinator of a `DIJob`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoordinatorSpec {
    /// Pod template of the coordinator. The main container must be named di-container.
    pub template: PodTemplate,
}

/// The collectors of a `DIJob`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CollectorSpec {
    /// Pod template of each collector. The main container must be named di-container.
    pub template: PodTemplate,
    /// Number of declared collectors with the resources of the template. Can be changed while the
    /// job runs; the coordinator can request more. All declared replicas of a job: at most 2000.
    /// Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = crate::names::MAX_REPLICAS))]
    pub replicas: i32,
    /// Groups of additional collectors whose resources differ from the template. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ReplicaGroup>,
    /// When the replica endpoint lists a collector. Scheduled: from the time it has a node. Ready:
    /// while its readiness probe succeeds; of a unit, those of all its pods. Default: Scheduled.
    #[serde(default, skip_serializing_if = "ListWhen::is_default")]
    pub list_when: ListWhen,
    /// Runs each collector as a unit of several pods. Default: unset, one pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<UnitSpec>,
}

/// The learners of a `DIJob`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LearnerSpec {
    /// Pod template of each learner. The main container must be named di-container.
    pub template: PodTemplate,
    /// Number of declared learners with the resources of the template. Can be changed while the job
    /// runs; the coordinator can request more. All declared replicas of a job: at most 2000.
    /// Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = crate::names::MAX_REPLICAS))]
    pub replicas: i32,
    /// Groups of additional learners whose resources differ from the template. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ReplicaGroup>,
    /// When the replica endpoint lists a learner. Scheduled: from the time it has a node. Ready:
    /// while its readiness probe succeeds; of a unit or learner group, those of all its pods.
    /// Default: Scheduled.
    #[serde(default, skip_serializing_if = "ListWhen::is_default")]
    pub list_when: ListWhen,
    /// Runs each learner as a unit of several pods, regardless of its GPUs. Default: unset, one
    /// pod, or a learner group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<UnitSpec>,
}

/// Replicas whose resources differ from the template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaGroup {
    /// Name of the group, unique within its role, at most 63 characters.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Number of replicas of the group. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = crate::names::MAX_REPLICAS))]
    pub replicas: i32,
    /// Requests and limits of the container di-container of each replica in the group. Default:
    /// those of the template.
    #[serde(default)]
    pub resources: ReplicaResources,
}

/// When the replica endpoint lists a replica. Scheduled: from the time it has a node. Ready: while
/// its readiness probe succeeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ListWhen {
    /// From the time it has a node.
    #[default]
    Scheduled,
    /// While it is ready.
    Ready,
}

impl ListWhen {
    /// Whether it is the default. The CRD has no default, so that stored jobs do not change.
    #[allow(clippy::trivially_copy_pass_by_ref)] // serde passes references
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which pods are deleted when the job ends. Services are always deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CleanPodPolicy {
    /// No pods are deleted.
    None,
    /// Pods that have not finished are deleted, except the coordinator, which is stopped.
    #[default]
    #[serde(alias = "")]
    Running,
    /// All pods are deleted.
    #[serde(alias = "ALL")]
    All,
}

impl JsonSchema for CleanPodPolicy {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CleanPodPolicy".into()
    }

    /// Also allows the spellings that the webhook replaces, for clusters without the webhook.
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "enum": ["None", "Running", "All", "ALL", ""],
        })
    }
}

/// The declared replicas of one role: the template and the counts.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredReplicas<'a> {
    /// Pod template of each replica.
    pub template: &'a PodTemplate,
    /// Number of replicas with the template's resources.
    pub replicas: i32,
    /// Groups of replicas with other resources.
    pub groups: &'a [ReplicaGroup],
}

impl DIJobSpec {
    /// Returns the declared replicas of `role`, or `None` if the spec does not declare the role.
    pub fn declared(&self, role: Role) -> Option<DeclaredReplicas<'_>> {
        match role {
            Role::Coordinator => Some(DeclaredReplicas {
                template: &self.coordinator.template,
                replicas: 1,
                groups: &[],
            }),
            Role::Collector => self.collector.as_ref().map(|part| DeclaredReplicas {
                template: &part.template,
                replicas: part.replicas,
                groups: &part.groups,
            }),
            Role::Learner => self.learner.as_ref().map(|part| DeclaredReplicas {
                template: &part.template,
                replicas: part.replicas,
                groups: &part.groups,
            }),
            Role::Aggregator | Role::DdpLearner => None,
        }
    }

    /// Returns when the replicas of a role are listed. A learner group is listed as a learner.
    pub fn list_when(&self, role: Role) -> ListWhen {
        let list_when = match role {
            Role::Coordinator => None,
            Role::Collector => self.collector.as_ref().map(|part| part.list_when),
            Role::Learner | Role::Aggregator | Role::DdpLearner => {
                self.learner.as_ref().map(|part| part.list_when)
            }
        };
        list_when.unwrap_or_default()
    }

    /// Returns the unit of the replicas of a role. `None` if each has one pod, or is a learner
    /// group.
    pub fn unit(&self, role: Role) -> Option<&UnitSpec> {
        match role {
            Role::Collector => self.collector.as_ref()?.unit.as_ref(),
            Role::Learner => self.learner.as_ref()?.unit.as_ref(),
            Role::Coordinator | Role::Aggregator | Role::DdpLearner => None,
        }
    }

    /// Returns the template of the first pod of each replica of a role.
    pub fn leader_template(&self, role: Role) -> Option<&PodTemplate> {
        let leader = self
            .unit(role)
            .and_then(|unit| unit.leader_template.as_ref());
        leader.or_else(|| Some(self.declared(role)?.template))
    }

    /// Returns the GPU count of a learner: from `resources`, else from the template. A learner with
    /// more than one GPU is a learner group. 0 with units, which are never learner groups.
    // See docs/decisions/0008.
    pub fn learner_gpus(&self, resources: &ReplicaResources) -> i32 {
        if self.unit(Role::Learner).is_some() {
            return 0;
        }
        let template_gpus = || {
            let learner = self.learner.as_ref()?;
            learner.template.main_quantity(GPU_RESOURCE)
        };
        let gpus = resources.gpus.clone().or_else(template_gpus);
        gpus.and_then(|gpus| quantity::parse_count(&gpus.0))
            .unwrap_or(0)
    }
}
