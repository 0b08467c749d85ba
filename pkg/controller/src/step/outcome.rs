//! The result of a step: the status, the actions and the events.

use std::time::Duration;

use di_api::{DIJobStatus, FailureAction, PlanEntry, Reason, Role};
use di_plan::{GroupView, PodView, ServiceView, StatusPatch, WorkloadDraft, WorkloadView};

/// Result of the step. The status is written first; the actions are applied once it is persisted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Step {
    /// The desired status.
    pub status: DIJobStatus,
    /// Writes that follow from the status.
    pub actions: Vec<Action>,
    /// Events since the status was last written.
    pub events: Vec<EventRecord>,
    /// Failures since the status was last written, for the metric: role, reason and action.
    pub failures: Vec<(Role, String, FailureAction)>,
    /// Delay of the next reconcile if nothing changes.
    pub requeue_after: Option<Duration>,
    /// Pods that must be read from the API server before the next decision, because the cache and
    /// the plan disagree.
    pub needs_live_read: Vec<String>,
    /// Flavors of Kueue that must be read from the API server before the next decision.
    pub needs_flavors: Vec<String>,
}

impl Step {
    /// Returns true if the step was computed without reads that it needs, so it must not be applied.
    pub(crate) fn needs_reads(&self) -> bool {
        !self.needs_live_read.is_empty() || !self.needs_flavors.is_empty()
    }

    /// Returns true if an action changes the status of the Workload with this name.
    pub(super) fn patches_workload(&self, name: &str) -> bool {
        let is_patch = |action: &Action| matches!(action, Action::PatchWorkloadStatus(patch) if patch.name == name);
        self.actions.iter().any(is_patch)
    }

    pub(crate) fn requeue_within(&mut self, delay: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(delay, |after| after.min(delay)));
    }

    /// Emits an event for each replaced replica, given by name and message, or one for all above
    /// [`MAX_LISTED_NAMES`]: many events would make the recorder drop others.
    pub(super) fn emit_replaced(&mut self, replaced: Vec<(String, String)>) {
        let messages: Vec<String> = if replaced.len() > MAX_LISTED_NAMES {
            let names: Vec<_> = replaced.iter().map(|(name, _)| name.as_str()).collect();
            let first_message = &replaced[0].1;
            vec![format!(
                "{} are replaced: {first_message}",
                join_names(&names)
            )]
        } else {
            replaced.into_iter().map(|(_, message)| message).collect()
        };
        let events = messages.into_iter();
        let events = events.map(|message| EventRecord::warning(Reason::ReplicaReplaced, message));
        self.events.extend(events);
    }
}

/// One write to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Create the pod of a replica.
    CreatePod(PlanEntry),
    /// Create the service of a replica.
    CreateService(PlanEntry),
    /// Delete the pod with this name and UID, with its own grace period.
    DeletePod {
        /// Name of the pod.
        name: String,
        /// UID of the pod.
        uid: String,
    },
    /// Stop the containers of the pod with this name and UID, and keep the pod for its logs.
    StopPod {
        /// Name of the pod.
        name: String,
        /// UID of the pod.
        uid: String,
    },
    /// Delete the service with this name and UID.
    DeleteService {
        /// Name of the service.
        name: String,
        /// UID of the service.
        uid: String,
    },
    /// Create a Workload of Kueue.
    CreateWorkload(Box<WorkloadDraft>),
    /// Replace the pods, queue and priority of a Workload without quota.
    UpdateWorkload {
        /// The Workload.
        draft: Box<WorkloadDraft>,
        /// Its version.
        resource_version: String,
    },
    /// Change the status of a Workload.
    PatchWorkloadStatus(StatusPatch),
    /// Delete the Workload with this name and UID.
    DeleteWorkload {
        /// Name of the Workload.
        name: String,
        /// UID of the Workload.
        uid: String,
    },
    /// Create the group of the job, for the gang scheduler.
    CreateGroup {
        /// Number of pods that start together.
        min_member: i32,
    },
    /// Change the number of pods that start together.
    UpdateGroup {
        /// Name of the group.
        name: String,
        /// UID of the group.
        uid: String,
        /// The number.
        min_member: i32,
    },
    /// Delete the group with this name and UID.
    DeleteGroup {
        /// Name of the group.
        name: String,
        /// UID of the group.
        uid: String,
    },
    /// Remove the pod with this name and UID from its group.
    LeaveGroup {
        /// Name of the pod.
        name: String,
        /// UID of the pod.
        uid: String,
    },
    /// Delete the job after its TTL.
    DeleteJob,
}

impl Action {
    /// Returns true if the action creates the coordinator's pod.
    pub(crate) fn creates_coordinator(&self) -> bool {
        matches!(self, Self::CreatePod(entry) if entry.role == Role::Coordinator)
    }

    /// Returns resource and name of the object that the action creates.
    pub(crate) fn created_object(&self) -> Option<(&'static str, String)> {
        match self {
            Self::CreatePod(entry) => Some(("pods", entry.name.clone())),
            Self::CreateService(entry) => Some(("services", entry.name.clone())),
            Self::CreateWorkload(draft) => Some(("workloads", draft.name.clone())),
            _ => None,
        }
    }

    /// Returns true if the action writes a Workload of Kueue.
    pub(crate) fn is_for_workload(&self) -> bool {
        matches!(
            self,
            Self::CreateWorkload(_)
                | Self::UpdateWorkload { .. }
                | Self::PatchWorkloadStatus(_)
                | Self::DeleteWorkload { .. }
        )
    }

    /// Returns true if the action writes a group of the gang scheduler.
    pub(crate) fn is_for_group(&self) -> bool {
        matches!(
            self,
            Self::CreateGroup { .. } | Self::UpdateGroup { .. } | Self::DeleteGroup { .. }
        )
    }

    pub(super) fn delete_pod(pod: &PodView) -> Self {
        Self::DeletePod {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        }
    }

    pub(super) fn stop_pod(pod: &PodView) -> Self {
        Self::StopPod {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        }
    }

    pub(super) fn delete_workload(workload: &WorkloadView) -> Self {
        Self::DeleteWorkload {
            name: workload.name.clone(),
            uid: workload.uid.clone(),
        }
    }

    pub(super) fn delete_group(group: &GroupView) -> Self {
        Self::DeleteGroup {
            name: group.name.clone(),
            uid: group.uid.clone(),
        }
    }

    pub(super) fn leave_group(pod: &PodView) -> Self {
        Self::LeaveGroup {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        }
    }

    pub(super) fn delete_service(service: &ServiceView) -> Self {
        Self::DeleteService {
            name: service.name.clone(),
            uid: service.uid.clone(),
        }
    }
}

/// A Kubernetes event to emit about the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventRecord {
    /// True for type `Warning`, false for `Normal`.
    pub warning: bool,
    /// Reason of the event.
    pub reason: Reason,
    /// Message of the event. Events with the same reason and message are counted together.
    pub message: String,
    /// Resource that is retried. Events with the same key are counted together even if their
    /// messages differ.
    pub series_key: Option<&'static str>,
}

impl EventRecord {
    /// Creates an event of type `Normal`.
    pub fn normal(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            warning: false,
            reason,
            message: message.into(),
            series_key: None,
        }
    }

    /// Creates an event of type `Warning`.
    pub fn warning(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            warning: true,
            ..Self::normal(reason, message)
        }
    }
}

/// Maximum number of names in the message of an event.
const MAX_LISTED_NAMES: usize = 5;

/// Joins names for the message of an event. Names above the maximum are counted.
pub(crate) fn join_names(names: &[&str]) -> String {
    match names.len().saturating_sub(MAX_LISTED_NAMES) {
        0 => names.join(", "),
        more => {
            let listed = names[..MAX_LISTED_NAMES].join(", ");
            format!("{listed} and {more} more")
        }
    }
}
