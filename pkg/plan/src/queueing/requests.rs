//! What the orchestrator writes to Workloads.

use std::collections::BTreeMap;

use di_api::{DIJob, names, names::kueue};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kube::{
    Resource, ResourceExt,
    core::{DynamicObject, TypeMeta},
};
use serde_json::{Value, json};

use super::pod_sets::PodSet;
use crate::view::{PodSetSummary, SUMMARY_ANNOTATION, WorkloadSummary, WorkloadView};

/// A served version of the API of Kueue. Later versions are preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KueueVersion {
    /// `v1beta1`, until Kueue 0.14 the only one.
    V1beta1,
    /// `v1beta2`.
    V1beta2,
}

impl KueueVersion {
    /// All versions, the preferred one first.
    pub const ALL: [Self; 2] = [Self::V1beta2, Self::V1beta1];

    /// The version as in URLs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1beta1 => "v1beta1",
            Self::V1beta2 => "v1beta2",
        }
    }
}

/// A Workload to create or to update.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadDraft {
    /// Name.
    pub name: String,
    /// The LocalQueue.
    pub queue: String,
    /// Index of a replica with quota of its own.
    pub index: Option<i32>,
    /// Its WorkloadPriorityClass.
    pub workload_class: Option<String>,
    /// Its PriorityClass, if it has no WorkloadPriorityClass.
    pub pod_class: Option<String>,
    /// The pods.
    pub pod_sets: Vec<PodSet>,
}

impl WorkloadDraft {
    /// What the Workload has in its annotation.
    pub fn summary(&self) -> WorkloadSummary {
        let pod_sets = self.pod_sets.iter().map(|set| {
            let template = set.template_hash();
            let count = set.count;
            (set.name.clone(), PodSetSummary { count, template })
        });
        WorkloadSummary {
            queue: self.queue.clone(),
            workload_class: self.workload_class.clone(),
            pod_class: self.pod_class.clone(),
            pod_sets: pod_sets.collect(),
        }
    }
}

/// Priority of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Priority {
    /// Group, kind and name of the class. `None` without a class.
    pub class: Option<(&'static str, &'static str, String)>,
    /// Higher values are admitted first.
    pub value: i32,
}

/// Builds a Workload of the job.
pub fn new_workload(
    job: &DIJob,
    draft: &WorkloadDraft,
    version: KueueVersion,
    priority: &Priority,
) -> DynamicObject {
    let mut spec = workload_spec(draft, version, priority);
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    let labels = [
        ("kueue.x-k8s.io/job-uid", job.uid().unwrap_or_default()),
        (names::labels::GROUP, names::labels::GROUP_VALUE.to_owned()),
        (names::labels::JOB, job.name_any()),
        (
            names::labels::CONTROLLER,
            names::labels::CONTROLLER_VALUE.to_owned(),
        ),
    ];
    let kind = format!("{}/{}, Kind=DIJob", names::GROUP, names::VERSION);
    let annotations = [
        ("kueue.x-k8s.io/job-owner-gvk", kind),
        ("kueue.x-k8s.io/job-owner-name", job.name_any()),
        (SUMMARY_ANNOTATION, json!(draft.summary()).to_string()),
    ];
    let index = draft
        .index
        .map(|index| ("kueue.x-k8s.io/component-workload-index", index.to_string()));
    let to_map = |(key, value): (&str, String)| (key.to_owned(), value);
    DynamicObject {
        types: Some(TypeMeta {
            api_version: api_version(version),
            kind: "Workload".to_owned(),
        }),
        metadata: ObjectMeta {
            name: Some(draft.name.clone()),
            namespace: job.namespace(),
            labels: Some(labels.map(to_map).into()),
            annotations: Some(annotations.into_iter().chain(index).map(to_map).collect()),
            // Without a finalizer: the deletion of a namespace must not wait for the orchestrator.
            owner_references: job.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: json!({ "spec": spec }),
    }
}

/// Builds the merge patch that makes a Workload without quota equal to a draft.
pub fn updated_workload(
    draft: &WorkloadDraft,
    version: KueueVersion,
    priority: &Priority,
    resource_version: &str,
) -> Value {
    json!({
        "metadata": {
            "resourceVersion": resource_version,
            "annotations": {(SUMMARY_ANNOTATION): json!(draft.summary()).to_string()},
        },
        "spec": workload_spec(draft, version, priority),
    })
}

/// `apiVersion` of Workloads.
fn api_version(version: KueueVersion) -> String {
    format!("{}/{}", kueue::GROUP, version.as_str())
}

/// Fields without a value are null: a merge patch removes them.
fn workload_spec(draft: &WorkloadDraft, version: KueueVersion, priority: &Priority) -> Value {
    let mut spec = json!({
        "queueName": draft.queue,
        "podSets": draft.pod_sets,
        "priority": priority.value,
    });
    let class = priority.class.as_ref();
    match version {
        KueueVersion::V1beta2 => {
            let reference = class
                .map(|(group, kind, name)| json!({"group": group, "kind": kind, "name": name}));
            spec["priorityClassRef"] = json!(reference);
        }
        KueueVersion::V1beta1 => {
            let source = class.map(|(group, kind, _)| format!("{group}/{}", kind.to_lowercase()));
            spec["priorityClassSource"] = json!(source);
            spec["priorityClassName"] = json!(class.map(|(_, _, name)| name));
        }
    }
    spec
}

/// A server-side apply of a part of the status of a Workload.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusPatch {
    /// Name of the Workload.
    pub name: String,
    /// The API server rejects the patch with a conflict if the Workload has another version.
    pub resource_version: String,
    /// The owner of the fields.
    pub field_manager: &'static str,
    /// The fields.
    pub status: Value,
}

impl StatusPatch {
    fn new(workload: &WorkloadView, field_manager: &'static str, status: Value) -> Self {
        Self {
            name: workload.name.clone(),
            resource_version: workload.resource_version.clone(),
            field_manager,
            status,
        }
    }

    /// The body of the request.
    pub fn body(&self, version: KueueVersion) -> Value {
        json!({
            "apiVersion": api_version(version),
            "kind": "Workload",
            "metadata": {"name": self.name, "resourceVersion": self.resource_version},
            "status": self.status,
        })
    }
}

/// Conditions that Kueue's admission owns, without those that a release sets.
const REPEATED_CONDITIONS: [&str; 5] = [
    "Evicted",
    "Preempted",
    "DeactivationTarget",
    "Finished",
    "BlockedOnPreemptionGates",
];

/// Returns the quota of an evicted Workload. Its pods must be gone.
///
/// The fields of Kueue's admission are applied as their owner, so all of them are repeated: those
/// that are left out are removed.
pub fn release_quota(workload: &WorkloadView, now: Timestamp) -> StatusPatch {
    let evicted = workload.condition("Evicted");
    let (reason, message) = evicted.map_or(("Deactivated", "The workload is deactivated"), |c| {
        (c.reason.as_str(), c.message.as_str())
    });
    // Kueue queues the Workload again after any other eviction, with its own delay.
    let is_requeued = ["Preempted", "NodeFailures"].contains(&reason);
    let mut conditions: Vec<Condition> = workload
        .conditions
        .iter()
        .filter(|condition| REPEATED_CONDITIONS.contains(&condition.type_.as_str()))
        .cloned()
        .collect();
    for (type_, is_true, reason) in [
        ("QuotaReserved", false, "Pending"),
        ("Admitted", false, "NoReservation"),
        ("Requeued", is_requeued, reason),
        ("PodsReady", false, "WaitForStart"),
    ] {
        // The reason of the new conditions is in the message.
        conditions.push(new_condition(
            workload, type_, is_true, reason, message, now,
        ));
    }
    let mut status = workload.admission_fields.clone();
    status.insert("conditions".to_owned(), json!(conditions));
    StatusPatch::new(workload, "kueue-admission", status.into())
}

/// Reports that the pods of the Workload have ended, or cannot be created, and so returns its
/// quota.
pub fn patch_finished(
    workload: &WorkloadView,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> StatusPatch {
    let condition = new_condition(workload, "Finished", true, reason, message, now);
    let status = json!({"conditions": [condition]});
    StatusPatch::new(workload, "di-orchestrator-finished", status)
}

/// Reports that all pods of the Workload have been ready. A later loss is not reported: Kueue could
/// evict the whole job because a single replica is replaced.
pub fn patch_pods_ready(workload: &WorkloadView, now: Timestamp) -> StatusPatch {
    let message = "all pods have been ready";
    let condition = new_condition(workload, "PodsReady", true, "Started", message, now);
    let status = json!({"conditions": [condition]});
    StatusPatch::new(workload, "di-orchestrator-pods-ready", status)
}

/// Sets the numbers of pods by pod set that no longer need their quota.
pub fn patch_reclaimable(
    workload: &WorkloadView,
    reclaimable: &BTreeMap<String, i32>,
) -> StatusPatch {
    let pods = reclaimable.iter().filter(|(_, count)| **count > 0);
    let pods: Vec<_> = pods
        .map(|(name, count)| json!({"name": name, "count": count}))
        .collect();
    let status = json!({ "reclaimablePods": pods });
    StatusPatch::new(workload, "kueue-reclaimable-pods", status)
}

fn new_condition(
    workload: &WorkloadView,
    type_: &str,
    is_true: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Condition {
    let status = if is_true { "True" } else { "False" };
    let before = workload
        .condition(type_)
        .filter(|before| before.status == status);
    let since = before.map_or(Time(now), |before| before.last_transition_time.clone());
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.chars().take(1024).collect(),
        observed_generation: None,
        last_transition_time: since,
    }
}
