use std::collections::BTreeMap;

use di_api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{ResourceExt, core::DynamicObject};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::owner::controlling_job;

/// Annotation of a Workload: its [`WorkloadSummary`] as JSON.
pub const SUMMARY_ANNOTATION: &str = "diengine.opendilab.org/pod-sets";

/// Fields of the status, besides conditions and admission, that Kueue applies together with the
/// admission.
const ADMISSION_FIELDS: [&str; 9] = [
    "accumulatedPastExecutionTimeSeconds",
    // The name in v1beta1.
    "accumulatedPastExexcutionTimeSeconds",
    "admissionChecks",
    "clusterName",
    "nominatedClusterNames",
    "preemptionGates",
    "requeueState",
    "schedulingStats",
    "unhealthyNodes",
];

/// The part of a Workload of Kueue that this crate needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadView {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// Version of the object, for writes.
    pub resource_version: String,
    /// Name of the job, from the job label.
    pub job: String,
    /// UID of the `DIJob` that is its controller.
    pub owner: Option<String>,
    /// Whether the Workload is being deleted.
    pub deleting: bool,
    /// `spec.active`. If false, Kueue admits nothing.
    pub active: bool,
    /// What the orchestrator wrote. Empty if the annotation was changed.
    pub summary: WorkloadSummary,
    /// All conditions.
    pub conditions: Vec<Condition>,
    /// The other fields of the status that belong to Kueue's admission, as they are.
    pub admission_fields: Map<String, Value>,
    /// What Kueue admitted.
    pub admission: Option<Admission>,
    /// Numbers of pods by pod set that no longer need their quota.
    pub reclaimable: BTreeMap<String, i32>,
}

/// What the orchestrator wrote into a Workload. The fields of the stored Workload cannot be
/// compared, because Kueue sets defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSummary {
    /// The LocalQueue.
    pub queue: String,
    /// The WorkloadPriorityClass.
    pub workload_class: Option<String>,
    /// The PriorityClass.
    pub pod_class: Option<String>,
    /// The pod sets by name.
    pub pod_sets: BTreeMap<String, PodSetSummary>,
}

/// What the orchestrator wrote into a pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSetSummary {
    /// Number of pods.
    pub count: i32,
    /// Hash of their template.
    pub template: String,
}

impl WorkloadSummary {
    /// Whether this Workload has the queue and all pod sets of `wanted`. Numbers of pods may differ.
    pub fn covers(&self, wanted: &Self) -> bool {
        let is_same = |(name, set): (&String, &PodSetSummary)| {
            let own = self.pod_sets.get(name);
            own.is_some_and(|own| own.template == set.template)
        };
        self.queue == wanted.queue && wanted.pod_sets.iter().all(is_same)
    }
}

/// `status.admission` of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Admission {
    /// Name of the ClusterQueue.
    pub cluster_queue: String,
    /// The pod sets.
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// What Kueue admitted for a pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodSetAssignment {
    /// Name of the pod set.
    pub name: String,
    /// Names of the flavors by resource.
    pub flavors: BTreeMap<String, String>,
    /// Number of pods. Kueue omits it in old versions; then it is that of the pod set.
    pub count: Option<i32>,
}

impl WorkloadView {
    /// The view of a Workload; `None` if it has no job label.
    pub fn new(workload: &DynamicObject) -> Option<Self> {
        let job = workload.labels().get(names::labels::JOB)?.clone();
        let (spec, status) = (&workload.data["spec"], &workload.data["status"]);
        let summary = workload.annotations().get(SUMMARY_ANNOTATION);
        let summary = summary.and_then(|text| serde_json::from_str(text).ok());
        let field = |name: &&str| Some(((*name).to_owned(), status.get(*name)?.clone()));
        let mut admission: Option<Admission> = parse(&status["admission"]);
        for assignment in admission
            .iter_mut()
            .flat_map(|all| &mut all.pod_set_assignments)
        {
            let pod_sets = spec["podSets"].as_array().into_iter().flatten();
            let mut same = pod_sets.filter(|pod_set| pod_set["name"] == *assignment.name);
            let count = same.next().and_then(|pod_set| parse(&pod_set["count"]));
            assignment.count = assignment.count.or(count);
        }
        let reclaimable: Vec<NameAndCount> = parse(&status["reclaimablePods"]).unwrap_or_default();
        Some(Self {
            name: workload.name_any(),
            namespace: workload.namespace().unwrap_or_default(),
            uid: workload.uid().unwrap_or_default(),
            resource_version: workload.resource_version().unwrap_or_default(),
            job,
            owner: controlling_job(workload),
            deleting: workload.metadata.deletion_timestamp.is_some(),
            active: spec["active"] != false,
            summary: summary.unwrap_or_default(),
            conditions: parse(&status["conditions"]).unwrap_or_default(),
            admission_fields: ADMISSION_FIELDS.iter().filter_map(field).collect(),
            admission,
            reclaimable: reclaimable
                .into_iter()
                .map(|set| (set.name, set.count))
                .collect(),
        })
    }

    /// The condition of this type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.type_ == type_)
    }

    /// Whether the condition of this type is True.
    pub fn is_true(&self, type_: &str) -> bool {
        self.condition(type_)
            .is_some_and(|condition| condition.status == "True")
    }

    /// Whether Kueue counts the pods of the Workload as used quota.
    pub fn has_quota(&self) -> bool {
        self.is_true("QuotaReserved") && !self.is_true("Finished")
    }

    /// Whether Kueue has stopped the Workload: its pods must end, and its quota be returned.
    pub fn is_evicted(&self) -> bool {
        self.is_true("Evicted") || !self.active
    }

    /// Whether the pods of the Workload may run.
    pub fn is_admitted(&self) -> bool {
        let is_admitted = self.has_quota() && self.is_true("Admitted");
        is_admitted && self.admission.is_some() && !self.is_evicted() && !self.deleting
    }

    /// Number of pods of each admitted pod set that may run, without those that are reclaimable.
    pub fn capacities(&self) -> BTreeMap<&str, i32> {
        let assignments = self
            .admission
            .iter()
            .flat_map(|all| &all.pod_set_assignments);
        let capacity = |assignment: &PodSetAssignment| {
            let reclaimable = self.reclaimable.get(&assignment.name).copied();
            assignment.count.unwrap_or(0) - reclaimable.unwrap_or(0)
        };
        assignments
            .map(|assignment| (&*assignment.name, capacity(assignment)))
            .collect()
    }
}

#[derive(Deserialize)]
struct NameAndCount {
    name: String,
    count: i32,
}

fn parse<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok()
}
