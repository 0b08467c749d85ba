use k8s_openapi::api::core::v1::{PodTemplateSpec, Volume};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{DIJobStatus, GPU_RESOURCE, ReplicaResources, Role, names::MAIN_CONTAINER, quantity};

/// A reinforcement-learning job: a coordinator, and the collectors and learners that it works with.
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
    /// A collection of jobs that this one belongs to.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    pub group: String,

    /// Priority class of every pod of the job.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "String::is_empty"
    )]
    #[schemars(length(max = 253))]
    pub priority_class_name: String,

    /// Which pods are deleted once the job has ended. Running deletes those that could still use the cluster, except the coordinator.
    #[serde(default)]
    pub clean_pod_policy: CleanPodPolicy,

    /// Volumes added to every pod of the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,

    /// Hands out tasks; the job ends when its container di-container ends.
    pub coordinator: CoordinatorSpec,

    /// Step environments and produce data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector: Option<CollectorSpec>,

    /// Train.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learner: Option<LearnerSpec>,

    /// Whether the job is held: no pod of it runs.
    #[serde(default)]
    pub suspend: bool,

    /// How long the job may run, in seconds since it started; unset means for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,

    /// How long the job is kept after its end, in seconds; unset means for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,

    /// How often a failed coordinator is started again before the job has failed.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub backoff_limit: i32,
}

/// The schema allows null for texts.
fn null_is_empty<'de, D: Deserializer<'de>>(text: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(text)?.unwrap_or_default())
}

/// The part of a `DIJob` that hands out tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoordinatorSpec {
    /// Pod of the coordinator; its main container is di-container.
    pub template: PodTemplateSpec,
}

/// The collectors of a `DIJob`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CollectorSpec {
    /// Pod of each collector; its main container is di-container.
    pub template: PodTemplateSpec,
    /// How many there are from the start, beside those that the coordinator asks for.
    #[serde(default)]
    #[schemars(range(min = 0, max = crate::names::MAX_REPLICAS))]
    pub replicas: i32,
    /// Further collectors whose resources differ from the template's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ReplicaGroup>,
}

/// The learners of a `DIJob`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LearnerSpec {
    /// Pod of each learner; its main container is di-container.
    pub template: PodTemplateSpec,
    /// How many there are from the start, beside those that the coordinator asks for.
    #[serde(default)]
    #[schemars(range(min = 0, max = crate::names::MAX_REPLICAS))]
    pub replicas: i32,
    /// Further learners whose resources differ from the template's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ReplicaGroup>,
}

/// Replicas whose resources differ from the template's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaGroup {
    /// Name of the group, its own within its role.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// How many replicas it has.
    #[serde(default)]
    #[schemars(range(min = 0, max = crate::names::MAX_REPLICAS))]
    pub replicas: i32,
    /// Resources of the container di-container of each.
    #[serde(default)]
    pub resources: ReplicaResources,
}

/// Which pods are deleted once the job has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CleanPodPolicy {
    /// None: every pod stays.
    None,
    /// Those that could still use the cluster go, except the coordinator.
    #[default]
    #[serde(alias = "")]
    Running,
    /// All go.
    #[serde(alias = "ALL")]
    All,
}

impl JsonSchema for CleanPodPolicy {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CleanPodPolicy".into()
    }

    /// Also lists the spellings that are turned into another before they are stored, for servers where no webhook does so.
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "enum": ["None", "Running", "All", "ALL", ""],
        })
    }
}

/// What is declared of one role: its template, and how many of it.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    /// Pod of each replica.
    pub template: &'a PodTemplateSpec,
    /// Replicas as the template has them.
    pub replicas: i32,
    /// Replicas with resources of their own.
    pub groups: &'a [ReplicaGroup],
}

impl DIJobSpec {
    /// What is declared of `role`; nothing for roles that the job does not have.
    pub fn declared(&self, role: Role) -> Option<Declared<'_>> {
        match role {
            Role::Coordinator => Some(Declared {
                template: &self.coordinator.template,
                replicas: 1,
                groups: &[],
            }),
            Role::Collector => self.collector.as_ref().map(|part| Declared {
                template: &part.template,
                replicas: part.replicas,
                groups: &part.groups,
            }),
            Role::Learner => self.learner.as_ref().map(|part| Declared {
                template: &part.template,
                replicas: part.replicas,
                groups: &part.groups,
            }),
            Role::Aggregator | Role::DdpLearner => None,
        }
    }

    /// GPUs of a learner with these resources: theirs, else those of the template. More than one make a logic learner.
    pub fn learner_gpus(&self, resources: &ReplicaResources) -> i32 {
        let of_template = || {
            let pod = self.learner.as_ref()?.template.spec.as_ref()?;
            let main = pod.containers.iter().find(|c| c.name == MAIN_CONTAINER)?;
            let resources = main.resources.as_ref()?;
            let lists = [&resources.limits, &resources.requests];
            lists
                .into_iter()
                .flatten()
                .find_map(|l| l.get(GPU_RESOURCE))
        };
        let gpus = resources.gpus.as_ref().or_else(of_template);
        gpus.and_then(|gpus| quantity::whole(&gpus.0)).unwrap_or(0)
    }
}
