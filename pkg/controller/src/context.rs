//! Dependencies and state that all reconciles share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use di_api::DIJob;
use di_cache::{
    AggregatorCache, GroupCache, JobCache, Key, NodeCache, PodCache, ServiceCache, WorkloadCache,
};
use di_plan::PodView;
use kube::{
    Client,
    runtime::events::{Recorder, Reporter},
};
use tokio::sync::Semaphore;

use crate::{
    Metrics, Settings, backoff::Backoff, event_queue::EventQueue, job_state::JobState,
    step::has_started,
};

/// Dependencies and state that all reconciles share.
pub(crate) struct Context {
    pub client: Client,
    pub settings: Settings,
    pub metrics: Metrics,
    // These caches also show own writes, before the watch does. See docs/decisions/0001.
    pub jobs: JobCache,
    pub pods: Arc<PodCache>,
    pub services: Arc<ServiceCache>,
    pub workloads: Arc<WorkloadCache>,
    pub groups: Arc<GroupCache>,
    pub nodes: Arc<NodeCache>,
    pub aggregators: Arc<AggregatorCache>,
    pub backoff: Backoff,
    /// Permits to reconcile, granted in the order of the requests. Closed at shutdown.
    pub reconcile_permits: Semaphore,
    /// Additional permits for [unresponsive](Backoff::is_unresponsive) jobs, which need one of
    /// each kind. They can use only a quarter of the concurrency.
    pub slow_lane: Semaphore,
    pub(crate) write_permits: Semaphore,
    pub(crate) recorder: Recorder,
    pub(crate) reporter: Reporter,
    pub event_queue: EventQueue,
    job_states: Mutex<HashMap<Key, JobState>>,
}

impl Context {
    pub fn new(
        client: Client,
        settings: Settings,
        metrics: Metrics,
        jobs: JobCache,
        event_queue: EventQueue,
    ) -> Self {
        let reporter = Reporter {
            controller: di_api::names::labels::CONTROLLER_VALUE.to_owned(),
            instance: Some(settings.identity.clone()),
        };
        Self {
            recorder: Recorder::new(client.clone(), reporter.clone()),
            reporter,
            event_queue,
            reconcile_permits: Semaphore::new(settings.concurrency.into()),
            slow_lane: Semaphore::new(usize::from(settings.concurrency).div_ceil(4)),
            write_permits: Semaphore::new(settings.writes_in_flight),
            client,
            settings,
            metrics,
            jobs,
            pods: Arc::default(),
            services: Arc::default(),
            workloads: Arc::default(),
            groups: Arc::default(),
            nodes: Arc::default(),
            aggregators: Arc::default(),
            backoff: Backoff::default(),
            job_states: Mutex::default(),
        }
    }

    /// Returns a copy of the state of a job.
    pub fn job_state(&self, job: &Key) -> JobState {
        self.job_states
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(job)
            .cloned()
            .unwrap_or_default()
    }

    /// Changes the state of a job.
    pub fn update_state(&self, job: &Key, change: impl FnOnce(&mut JobState)) {
        let mut states = self
            .job_states
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        change(states.entry(job.clone()).or_default());
    }

    /// Resets the state if the job was recreated under the same name.
    pub fn reset_if_recreated(&self, job: &Key, uid: Option<&str>) {
        if self.job_state(job).uid.as_deref() != uid {
            self.forget_job(job);
            self.update_state(job, |state| state.uid = uid.map(str::to_owned));
        }
    }

    /// Removes the state and the backoff of a job.
    pub fn forget_job(&self, job: &Key) {
        self.backoff.forget(job);
        self.job_states
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(job);
    }

    /// Returns true if nothing was created for the job yet, and it is not suspended. Existing pods
    /// prove the contrary even if the status was lost.
    pub fn is_new(&self, key: &Key, job: &DIJob) -> bool {
        let status = job.status.as_ref();
        job.metadata.deletion_timestamp.is_none()
            && !job.spec.suspend
            && status.is_none_or(|status| !has_started(status))
            && !self.has_pods(key, job.metadata.uid.as_deref())
    }

    /// Returns true if the cache has pods that the job with this UID owns.
    pub fn has_pods(&self, job: &Key, uid: Option<&str>) -> bool {
        let is_owned = |pod: &PodView| pod.belongs_to(uid.unwrap_or_default());
        self.pods
            .read_objects(job, |pods| pods.iter().any(is_owned))
    }
}

#[cfg(test)]
impl Context {
    /// A context with default settings and empty caches.
    pub fn test(client: Client) -> Self {
        Self::new(
            client,
            Settings::default(),
            Metrics::new(&mut prometheus_client::registry::Registry::default()),
            JobCache::new(kube::runtime::reflector::store().0),
            EventQueue::new().0,
        )
    }
}

#[cfg(test)]
mod tests {
    use di_fixtures::{ApiServerMock, Reply};

    use super::*;
    use crate::Error;

    #[tokio::test]
    async fn recreated_job_starts_with_empty_state() {
        let context = Context::test(ApiServerMock::client(|_| Reply::Reset));
        let job = ("ns".to_owned(), "job".to_owned());
        context.reset_if_recreated(&job, Some("old"));
        context.backoff.record_failure(&job, &Error::JobGone);
        context.update_state(&job, |state| state.terminal = true);
        context.reset_if_recreated(&job, Some("old"));
        let backoff = &context.backoff;
        assert!(context.job_state(&job).terminal && backoff.remaining_delay(&job).is_some());
        context.reset_if_recreated(&job, Some("new"));
        assert!(!context.job_state(&job).terminal && backoff.remaining_delay(&job).is_none());
    }
}
