use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use di_cache::{JobCache, JobView, Key, PodCache, call_with_timeout};
use futures::FutureExt;
use kube::{Api, Client};
use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};

use crate::{
    authorize::decision_cache::DecisionCache,
    error::{Error, Result},
    idempotency::keys::UnansweredKeys,
    list_cache::ListCache,
    metrics::Metrics,
    polls::WaitingPolls,
    settings::Settings,
};

/// Timeout of one call to the API server.
pub(crate) const API_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of concurrent live reads of jobs that the cache does not have.
const MAX_CONCURRENT_LOOKUPS: usize = 32;

/// A shared reference to a job in the cache.
pub(crate) type JobRef = di_cache::JobRef<JobView>;

/// The state that all requests share. Clones are cheap.
#[derive(Clone)]
pub struct State(Arc<SharedState>);

/// The fields of [`State`].
pub struct SharedState {
    pub(crate) client: Client,
    pub(crate) jobs: Arc<JobCache<JobView>>,
    pub(crate) pods: Arc<PodCache>,
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    pub(crate) decisions: DecisionCache,
    pub(crate) list_cache: ListCache,
    /// Like `list_cache`, of the recorded members.
    pub(crate) member_cache: ListCache,
    pub(crate) polls: WaitingPolls,
    /// The OpenAPI document; [`crate::Endpoint`] sets it.
    pub(crate) openapi: OnceLock<axum::body::Bytes>,
    pub(crate) unanswered_keys: UnansweredKeys,
    jobs_synced: AtomicBool,
    lookups: Semaphore,
    /// One lock for each job that a request changes.
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
    /// Creates the state from caches that a watch fills; `/metrics` shows `metrics`.
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
            member_cache: ListCache::default(),
            polls: WaitingPolls::default(),
            openapi: OnceLock::new(),
            unanswered_keys: UnansweredKeys::default(),
            jobs_synced: AtomicBool::new(false),
            lookups: Semaphore::new(MAX_CONCURRENT_LOOKUPS),
            job_locks: Mutex::default(),
            settings,
        }))
    }

    /// Whether the caches have been complete once.
    ///
    /// Failing watches do not change this: they fail for all replicas of the endpoint alike, and old
    /// data is better than no endpoint.
    pub fn is_ready(&self) -> bool {
        self.check_ready().is_ok()
    }
}

impl SharedState {
    /// Whether the first lists of both caches are complete.
    pub(crate) fn is_synced(&self) -> bool {
        if !self.jobs_synced.load(Relaxed) {
            let ready = self
                .jobs
                .reflector_store()
                .wait_until_ready()
                .now_or_never();
            if !matches!(ready, Some(Ok(()))) {
                return false;
            }
            self.jobs_synced.store(true, Relaxed);
        }
        *self.pods.subscribe_synced().borrow()
    }

    /// Fails unless [`State::is_ready`].
    pub(crate) fn check_ready(&self) -> Result<()> {
        if !self.is_synced() {
            return Err(not_synced_error());
        }
        Ok(())
    }

    /// Waits for the first lists of the caches, at most `sync_wait`.
    pub(crate) async fn wait_for_cache_sync(&self) -> Result<()> {
        if self.is_synced() {
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

    /// Returns the job from the cache, else from the API server.
    pub(crate) async fn find_job(&self, key: &Key) -> Result<JobRef> {
        if let Some(job) = self.jobs.get(key) {
            return Ok(job);
        }
        // Boxed because few requests get here: it keeps the futures of the others small.
        Box::pin(self.look_up_job(key)).await
    }

    /// Reads the job live, with limited concurrency, because the cache may be behind.
    pub(crate) async fn look_up_job(&self, key: &Key) -> Result<JobRef> {
        let _permit = self.lookups.acquire().await;
        self.read_job(key).await
    }

    /// Reads the job from the API server.
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

    /// Waits until the cached job is deleted or has another membership generation than `known`, the
    /// time is over, or the endpoint shuts down.
    pub(crate) async fn wait_for_members(
        &self,
        job: &Key,
        known: i64,
        wait: Duration,
    ) -> Result<()> {
        // The other requests need connections too.
        let connections = self.settings.max_connections;
        let _poll = self.polls.enter(job, connections - connections / 4)?;
        // Subscribe before the first look at the job, so that no change is missed.
        let mut changes = self.jobs.subscribe_job(job);
        let is_known = || {
            let cached = self.jobs.get(job);
            cached.is_some_and(|cached| cached.membership_generation == Some(known))
        };
        let new_list = async { while is_known() && changes.changed().await.is_ok() {} };
        tokio::select! {
            () = new_list => {}
            () = self.polls.wait_for_close() => {}
            () = sleep(wait) => {}
        }
        Ok(())
    }

    /// Locks the job for one change. Fails if too many requests wait already.
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
        // The owner of the lock, each waiting request and this one have a reference each.
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
    Error::Unavailable("the caches of jobs and pods are not synced yet".to_owned())
}

/// Calls the API server with a timeout. `doing` completes the sentence "cannot ...".
pub(crate) async fn call_api<T>(
    doing: &'static str,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T> {
    Ok(call_with_timeout(API_CALL_TIMEOUT, || doing.to_owned(), call).await?)
}
