use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use di_cache::{JobCache, JobView, Key, PodCache};
use futures::FutureExt;
use kube::{Api, Client};
use tokio::{sync::Semaphore, time::timeout};

use crate::{
    Settings,
    authorize::DecisionCache,
    error::{Error, Result},
    idempotency::keys::InFlightKeys,
    list_cache::ListCache,
    metrics::Metrics,
    openapi,
};

/// How long one call of the API server may take.
pub(crate) const API_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Jobs that no cache knows are asked for by at most so many requests at a time.
const MAX_CONCURRENT_LOOKUPS: usize = 32;

/// A job as the cache hands it out.
pub(crate) type JobRef = di_cache::JobRef<JobView>;

/// What the requests share.
#[derive(Clone)]
pub struct State(Arc<SharedState>);

/// What stands behind [`State`].
pub struct SharedState {
    pub(crate) client: Client,
    pub(crate) jobs: Arc<JobCache<JobView>>,
    pub(crate) pods: Arc<PodCache>,
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    pub(crate) decisions: DecisionCache,
    pub(crate) list_cache: ListCache,
    /// The OpenAPI document.
    pub(crate) openapi: axum::body::Bytes,
    pub(crate) in_flight_keys: InFlightKeys,
    jobs_synced: AtomicBool,
    lookups: Semaphore,
    /// One lock for each job that is being changed.
    job_locks: Mutex<HashMap<Key, Weak<tokio::sync::Mutex<()>>>>,
}

impl std::ops::Deref for State {
    type Target = SharedState;

    fn deref(&self) -> &SharedState {
        &self.0
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl State {
    /// Serves what the caches hold; `/metrics` shows `metrics`.
    pub fn new(
        client: Client,
        jobs: Arc<JobCache<JobView>>,
        pods: Arc<PodCache>,
        settings: Settings,
        metrics: Metrics,
    ) -> Self {
        Self(Arc::new(SharedState {
            metrics,
            client,
            jobs,
            pods,
            decisions: DecisionCache::default(),
            list_cache: ListCache::default(),
            openapi: openapi::document(&settings).into(),
            in_flight_keys: InFlightKeys::default(),
            jobs_synced: AtomicBool::new(false),
            lookups: Semaphore::new(MAX_CONCURRENT_LOOKUPS),
            job_locks: Mutex::default(),
            settings,
        }))
    }

    /// Whether callers should come here. Not that the watches work: what makes them fail is the same for all replicas of the endpoint, and what
    /// was seen last is more than nobody answers.
    pub fn is_ready(&self) -> bool {
        self.check_ready().is_ok()
    }
}

impl SharedState {
    /// Whether the first lists of both caches are complete.
    pub(crate) fn synced(&self) -> bool {
        if !self.jobs_synced.load(Relaxed) {
            let ready = self.jobs.reflector_store().wait_until_ready().now_or_never();
            if !matches!(ready, Some(Ok(()))) {
                return false;
            }
            self.jobs_synced.store(true, Relaxed);
        }
        *self.pods.subscribe_synced().borrow()
    }

    /// As [`State::is_ready`] tells.
    pub(crate) fn check_ready(&self) -> Result<()> {
        if !self.synced() {
            return Err(not_synced_error());
        }
        Ok(())
    }

    /// Waits, but not long, for the first lists of the caches.
    pub(crate) async fn wait_for_cache_sync(&self) -> Result<()> {
        if self.synced() {
            return Ok(());
        }
        let mut pods = self.pods.subscribe_synced();
        let both = Box::pin(async {
            let jobs = self.jobs.reflector_store().wait_until_ready().await.is_ok();
            jobs && pods.wait_for(|synced| *synced).await.is_ok()
        });
        match timeout(self.settings.sync_wait, both).await {
            Ok(true) => Ok(()),
            _ => Err(not_synced_error()),
        }
    }

    pub(crate) fn job_api(&self, namespace: &str) -> Api<JobView> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The job of the cache, or of the API server where the cache does not know it.
    pub(crate) async fn find_job(&self, key: &Key) -> Result<JobRef> {
        if let Some(job) = self.jobs.get(key) {
            return Ok(job);
        }
        // Boxed, as is all that few requests come to: the rest of them are small so.
        Box::pin(self.look_up_job(key)).await
    }

    /// The job as the API server has it now, for what the cache may not know yet.
    pub(crate) async fn look_up_job(&self, key: &Key) -> Result<JobRef> {
        let _permit = self.lookups.acquire().await;
        self.read_job(key).await
    }

    /// The job as the API server has it now.
    pub(crate) async fn read_job(&self, key: &Key) -> Result<JobRef> {
        let read = call_api("read the DIJob", async {
            self.job_api(&key.0).get_opt(&key.1).await
        });
        let Some(job) = read.await? else {
            return Err(Error::NotFound(format!(
                "there is no DIJob {} in namespace {}",
                key.1, key.0
            )));
        };
        Ok(self.jobs.record_write(job))
    }

    /// Waits until no other request changes this job; not where too many wait already.
    pub(crate) async fn lock_job(&self, job: &Key) -> Result<tokio::sync::OwnedMutexGuard<()>> {
        let lock = {
            let mut job_locks = self
                .job_locks
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(lock) = job_locks.get(job).and_then(Weak::upgrade) {
                lock
            } else {
                job_locks.retain(|_, lock| lock.strong_count() > 0);
                let lock = Arc::<tokio::sync::Mutex<()>>::default();
                job_locks.insert(job.clone(), Arc::downgrade(&lock));
                lock
            }
        };
        // Whoever holds it or waits for it has a share of it, and so have we.
        if Arc::strong_count(&lock) > self.settings.max_changes_per_job {
            return Err(Error::TooManyRequests(format!(
                "too many requests change DIJob {} at the same time",
                job.1
            )));
        }
        Ok(lock.lock_owned().await)
    }
}

fn not_synced_error() -> Error {
    Error::Unavailable("the jobs and pods of the cluster are not all known yet".to_owned())
}

/// Calls the API server, within a time.
pub(crate) async fn call_api<T>(
    doing: &'static str,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T> {
    match timeout(API_CALL_TIMEOUT, call).await {
        Ok(answer) => answer.map_err(|source| Error::Api {
            doing,
            source: Box::new(source),
        }),
        Err(_) => Err(Error::Timeout(doing)),
    }
}
