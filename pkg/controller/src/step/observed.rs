//! What a step is computed from.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use di_api::{ConditionType, DIJobStatus, Reason, set_condition};
use di_cache::{GroupApi, JobRef, QueueApi};
use di_plan::{
    AggregatorTemplate, FlavorView, GangScheduler, GroupView, NodeView, PodView, ServiceView,
    WorkloadView,
};
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
    /// What Kueue says about the job.
    pub queue: ObservedQueue,
    /// What the gang scheduler knows about the job.
    pub gang: ObservedGang,
    /// Error of the last reconcile, unless it is solved.
    pub last_error: Option<ReconcileError>,
    /// Final state of the coordinator pod in the status, if its container ended before the pod was
    /// deleted.
    pub final_coordinator_state: Option<PodView>,
    /// Names and UIDs of the job's pods that have lost its label, from live reads. No watch shows
    /// them.
    pub unlabeled_pods: HashMap<String, String>,
    /// Time since which a pod waits with a reason of [`waiting_reason`], by pod UID.
    ///
    /// [`waiting_reason`]: super::failures::waiting_reason
    pub waiting_since: HashMap<String, Timestamp>,
    /// Results of live reads: pod name, and true if the pod exists. A cache may lag.
    pub live_reads: HashMap<String, bool>,
    /// The current time.
    pub now: Timestamp,
}

/// What Kueue says about a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedQueue {
    /// Whether Kueue can be used.
    pub api: QueueApi,
    /// Workloads with the labels of the job. Some may belong to other jobs.
    pub workloads: Vec<WorkloadView>,
    /// Flavors by name, from live reads.
    pub flavors: BTreeMap<String, FlavorView>,
}

/// What the gang scheduler knows about a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedGang {
    /// The scheduler that can place gangs. `None` if the administrator has chosen none.
    pub scheduler: Option<GangScheduler>,
    /// Whether its groups can be used. Served if it needs none.
    pub api: GroupApi,
    /// Groups that the job owns, or that have its label. Some may belong to other jobs.
    pub groups: Vec<GroupView>,
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

impl Observed {
    pub(crate) fn job_uid(&self) -> &str {
        self.job.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(super) fn own_pods(&self) -> impl Iterator<Item = &PodView> {
        self.pods
            .iter()
            .filter(|pod| pod.belongs_to(self.job_uid()))
    }

    pub(super) fn own_services(&self) -> impl Iterator<Item = &ServiceView> {
        let uid = self.job_uid();
        self.services
            .iter()
            .filter(move |service| service.owner.as_deref() == Some(uid))
    }

    pub(super) fn own_pod(&self, name: &str) -> Option<&PodView> {
        self.any_pod(name)
            .filter(|pod| pod.belongs_to(self.job_uid()))
    }

    /// Finds a pod, including pods of other jobs.
    pub(super) fn any_pod(&self, name: &str) -> Option<&PodView> {
        let by_name = |pod: &PodView| pod.name.as_str().cmp(name);
        self.pods.get(self.pods.binary_search_by(by_name).ok()?)
    }

    pub(super) fn own_service(&self, name: &str) -> Option<&ServiceView> {
        let by_name = |service: &ServiceView| service.name.as_str().cmp(name);
        let service = self
            .services
            .get(self.services.binary_search_by(by_name).ok()?)?;
        (service.owner.as_deref() == Some(self.job_uid())).then_some(service)
    }

    pub(super) fn set_condition(
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
