//! A status write as Kueue does it: server-side apply as `kueue-admission`.

use di_api::names::kueue::GROUP;
use jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

use crate::workload::{Assignment, condition, format_amount, items};

/// Time from a release with `Requeued=False` until the Workload is pending again.
const BACKOFF: SignedDuration = SignedDuration::from_secs(1);

/// The changed status of a Workload.
pub(crate) struct StatusDraft<'a> {
    workload: &'a DynamicObject,
    now: Timestamp,
    conditions: Vec<Value>,
    admission: Value,
    is_changed: bool,
}

impl<'a> StatusDraft<'a> {
    pub(crate) fn new(workload: &'a DynamicObject, now: Timestamp) -> Self {
        let status = &workload.data["status"];
        Self {
            workload,
            now,
            conditions: items(&status["conditions"]).cloned().collect(),
            admission: status["admission"].clone(),
            is_changed: false,
        }
    }

    /// Sets a condition. Its transition time changes only with its status.
    pub(crate) fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let mut condition = json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": self.now.to_string(),
        });
        if let Some(generation) = self.workload.metadata.generation {
            condition["observedGeneration"] = generation.into();
        }
        let mut conditions = self.conditions.iter_mut();
        let Some(old) = conditions.find(|old| old["type"] == kind) else {
            self.conditions.push(condition);
            self.is_changed = true;
            return;
        };
        if old["status"] == status && old["reason"] == reason && old["message"] == message {
            return;
        }
        if old["status"] == status {
            condition["lastTransitionTime"] = old["lastTransitionTime"].take();
        }
        *old = condition;
        self.is_changed = true;
    }

    /// Reserves quota in a ClusterQueue and admits the Workload.
    pub(crate) fn admit(&mut self, queue: &str, assignments: &[Assignment]) {
        let assignments = assignments.iter().map(|assignment| {
            let usage = assignment.usage.iter();
            let usage: Map<String, Value> = usage
                .map(|(resource, amount)| (resource.clone(), format_amount(*amount).into()))
                .collect();
            json!({
                "name": assignment.pod_set, "flavors": assignment.flavors,
                "resourceUsage": usage, "count": i64::try_from(assignment.count).unwrap(),
            })
        });
        let assignments: Vec<Value> = assignments.collect();
        self.admission = json!({"clusterQueue": queue, "podSetAssignments": assignments});
        let message = format!("Quota reserved in ClusterQueue {queue}");
        self.set("QuotaReserved", "True", "QuotaReserved", &message);
        self.set("Admitted", "True", "Admitted", "The workload is admitted");
        for kind in ["Evicted", "Preempted"] {
            let old = condition(self.workload, kind);
            if old["status"] == "True" {
                let message = old["message"].as_str().unwrap_or_default();
                let message = format!("Previously: {message}");
                self.set(kind, "False", "QuotaReserved", &message);
            }
        }
        self.conditions.retain(|old| old["type"] != "Requeued");
    }

    /// Whether the Workload is pending and not in back-off. Ends a back-off after its time.
    pub(crate) fn end_backoff(&mut self) -> bool {
        let requeued = condition(self.workload, "Requeued");
        if requeued["status"] != "False" {
            return true;
        }
        let since = requeued["lastTransitionTime"].as_str();
        let since: Option<Timestamp> = since.and_then(|since| since.parse().ok());
        if since.is_none_or(|since| self.now.duration_since(since) >= BACKOFF) {
            let message = "The workload backoff was finished";
            self.set("Requeued", "True", "BackoffFinished", message);
        }
        false
    }

    /// The object to apply. `None` if nothing changes.
    pub(crate) fn into_patch(self, version: &str) -> Option<Value> {
        if !self.is_changed {
            return None;
        }
        // An apply removes fields of its manager that it omits, so it repeats the others.
        let mut status = json!({"conditions": self.conditions});
        if !self.admission.is_null() {
            status["admission"] = self.admission;
        }
        for field in ["admissionChecks", "requeueState"] {
            if let Some(value) = self.workload.data["status"].get(field) {
                status[field] = value.clone();
            }
        }
        let metadata = &self.workload.metadata;
        Some(json!({
            "apiVersion": format!("{GROUP}/{version}"),
            "kind": "Workload",
            "metadata": {
                "name": metadata.name, "namespace": metadata.namespace,
                "resourceVersion": metadata.resource_version,
            },
            "status": status,
        }))
    }
}
