//! The step: a pure function from the observed cluster to the desired status, the actions and the
//! events of a job. It does no IO.
//!
//! | Job | Rules |
//! |---|---|
//! | being deleted | none, the garbage collector deletes its objects |
//! | invalid, without pods | [`ending`]: fails |
//! | coordinator has ended | [`coordinator`]: the job ends, or the coordinator restarts |
//! | suspended | [`ending`]: deletes pods and services, keeps the plan |
//! | past its deadline | [`ending`]: fails |
//! | active | [`coordinator`], then [`replicas`] and [`learner_groups`] |
//! | ended | [`ending`]: cleans up, deletes the job after its TTL |
//!
//! In all cases but the first, [`counts`] and [`conditions`] then complete the status.

mod conditions;
mod coordinator;
mod counts;
mod ending;
mod learner_groups;
mod loss;
mod phase;
mod replicas;

use std::{collections::HashMap, sync::Arc, time::Duration};

use di_api::{
    ConditionType, DIJobStatus, Phase, PlanEntry, Reason, Role, find_condition, set_condition,
    validation,
};
use di_cache::JobRef;
use di_plan::{AggregatorTemplate, NodeView, PodView, ServiceView, Suffixes};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The observed cluster, as far as one job is concerned.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    /// The job.
    pub job: JobRef,
    /// Pods with the labels of the job, sorted by name. Some may belong to other jobs.
    pub pods: Vec<PodView>,
    /// Services with the labels of the job, sorted by name. Some may belong to other jobs.
    pub services: Vec<ServiceView>,
    /// Nodes with GPUs. `None` until they are listed.
    pub nodes: Option<Arc<[NodeView]>>,
    /// Template of aggregator pods in the namespace of the job.
    pub aggregator: AggregatorTemplate,
    /// Error of the last reconcile, unless it is solved.
    pub last_error: Option<ReconcileError>,
    /// Final state of the coordinator pod in the status, if its container ended before the pod was
    /// deleted.
    pub final_coordinator_state: Option<PodView>,
    /// Results of live reads: pod name, and true if the pod exists. A cache may lag.
    pub live_reads: HashMap<String, bool>,
    /// The current time.
    pub now: Timestamp,
}

/// Error of the last reconcile, for the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReconcileError {
    /// Reason of the condition.
    pub reason: Reason,
    /// Message for users.
    pub message: String,
    /// Resource and name of the object, if its create was rejected and is deferred.
    pub deferred_create: Option<(&'static str, String)>,
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
            _ => None,
        }
    }

    fn delete_pod(pod: &PodView) -> Self {
        Self::DeletePod {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        }
    }

    fn stop_pod(pod: &PodView) -> Self {
        Self::StopPod {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        }
    }

    fn delete_service(service: &ServiceView) -> Self {
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

/// Result of the step. The status is written first; the actions are applied once it is persisted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Step {
    /// The desired status.
    pub status: DIJobStatus,
    /// Writes that follow from the status.
    pub actions: Vec<Action>,
    /// Events since the status was last written.
    pub events: Vec<EventRecord>,
    /// Delay of the next reconcile if nothing changes.
    pub requeue_after: Option<Duration>,
    /// Pods that must be read from the API server before the next decision, because the cache and
    /// the plan disagree.
    pub needs_live_read: Vec<String>,
}

impl Step {
    pub(crate) fn requeue_within(&mut self, delay: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(delay, |after| after.min(delay)));
    }
}

impl Observed {
    fn job_uid(&self) -> &str {
        self.job.metadata.uid.as_deref().unwrap_or_default()
    }

    fn own_pods(&self) -> impl Iterator<Item = &PodView> {
        self.pods
            .iter()
            .filter(|pod| pod.belongs_to(self.job_uid()))
    }

    fn own_services(&self) -> impl Iterator<Item = &ServiceView> {
        let uid = self.job_uid();
        self.services
            .iter()
            .filter(move |service| service.owner.as_deref() == Some(uid))
    }

    fn own_pod(&self, name: &str) -> Option<&PodView> {
        self.any_pod(name)
            .filter(|pod| pod.belongs_to(self.job_uid()))
    }

    /// Finds a pod, including pods of other jobs.
    fn any_pod(&self, name: &str) -> Option<&PodView> {
        let by_name = |pod: &PodView| pod.name.as_str().cmp(name);
        self.pods.get(self.pods.binary_search_by(by_name).ok()?)
    }

    fn own_service(&self, name: &str) -> Option<&ServiceView> {
        let by_name = |service: &ServiceView| service.name.as_str().cmp(name);
        let service = self
            .services
            .get(self.services.binary_search_by(by_name).ok()?)?;
        (service.owner.as_deref() == Some(self.job_uid())).then_some(service)
    }

    fn set_condition(
        &self,
        status: &mut DIJobStatus,
        type_: ConditionType,
        is_true: bool,
        reason: Reason,
        message: &str,
    ) {
        set_condition(
            &mut status.conditions,
            type_,
            is_true,
            reason,
            message,
            self.job.metadata.generation,
            &Time(self.now),
        );
    }
}

/// Returns true if anything of the job was planned or created. A job that was suspended from the
/// start has only a phase.
pub(crate) fn has_started(status: &DIJobStatus) -> bool {
    let has_phase = status.phase.is_some_and(|phase| phase != Phase::Suspended);
    let was_created = find_condition(&status.conditions, ConditionType::Created).is_some();
    has_phase || was_created || !status.plan.is_empty()
}

/// Computes the desired status of a job, and the actions and events that follow.
pub(crate) fn step(observed: &Observed, suffixes: &mut dyn Suffixes) -> Step {
    let mut step = Step {
        status: observed.job.status.clone().unwrap_or_default(),
        ..Step::default()
    };
    if observed.job.metadata.deletion_timestamp.is_some() {
        // The garbage collector deletes the objects that the job owns.
        return step;
    }
    if !step.status.has_ended() {
        step_active(observed, &mut step, suffixes);
    }
    if step.status.has_ended() {
        ending::clean_up(observed, &mut step);
    }
    counts::set_counts(observed, &mut step.status);
    conditions::set_conditions(observed, &mut step.status);
    step
}

fn step_active(observed: &Observed, step: &mut Step, suffixes: &mut dyn Suffixes) {
    // A job with pods is running: its pods are worth more than the mistake. A suspended job can be
    // fixed until it is resumed.
    let may_start = step.status.start_time.is_none() && !observed.job.spec.suspend;
    if may_start && observed.own_pods().next().is_none() {
        let faults = validation::dijob_faults(&observed.job);
        if !faults.is_empty() {
            let message = validation::summarize_faults(&faults);
            phase::finish_job(observed, step, Phase::Failed, Reason::InvalidSpec, &message);
            return;
        }
    }
    // First, so that a finished job never restarts: it may be suspended or late by now.
    coordinator::check_end(observed, step);
    if step.status.has_ended() {
        return;
    }
    if observed.job.spec.suspend {
        ending::suspend_job(observed, step);
        return;
    }
    ending::check_deadline(observed, step);
    if !step.status.has_ended() {
        coordinator::reconcile_coordinator(observed, step);
    }
    if !step.status.has_ended() {
        replicas::reconcile_replicas(observed, step, suffixes);
    }
}

#[cfg(test)]
mod tests;
