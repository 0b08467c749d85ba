use std::{
    collections::{HashMap, HashSet},
    ops::Deref,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::{Duration, Instant},
};

use di_api::DIJob;
use kube::{
    Resource, ResourceExt,
    core::DeserializeGuard,
    runtime::{
        reflector::{ObjectRef, Store},
        watcher::Event,
    },
};
use tokio::sync::watch;

use crate::{job_notifier::JobNotifier, key::Key, recent::RecentSet};

/// A watched job, whole or as a view. A job that cannot be decoded does not stop the watch.
pub type WatchedJob<J = DIJob> = DeserializeGuard<J>;

/// Jobs from a watch, overlaid with the results of own writes.
#[derive(Debug)]
pub struct JobCache<J: Resource<DynamicType = ()> + 'static = DIJob> {
    store: Store<WatchedJob<J>>,
    own_writes: RwLock<OwnWrites<J>>,
    change_notifier: JobNotifier,
}

#[derive(Debug)]
struct OwnWrites<J> {
    /// Results of own writes that the watch has not shown, as client-go's expectations.
    unconfirmed: HashMap<Key, UnconfirmedWrite<J>>,
    /// UIDs of recently deleted jobs. The response of a write may arrive after the deletion.
    deleted: RecentSet,
}

/// The result of an own write.
#[derive(Debug)]
struct UnconfirmedWrite<J> {
    job: JobRef<J>,
    written_at: Instant,
    /// Whether the watch has shown the job. If so, its absence from the store means deletion.
    is_watched: bool,
}

/// A job that the watch does not show within this time after a write is considered deleted.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(60);
/// From this number of unconfirmed writes on, each new write removes those that are outdated.
const MAX_UNCONFIRMED_BEFORE_PRUNE: usize = 256;

/// A job of the cache.
#[derive(Debug)]
pub struct JobRef<J = DIJob>(Arc<WatchedJob<J>>);

impl<J> Clone for JobRef<J> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<J> Deref for JobRef<J> {
    type Target = J;

    fn deref(&self) -> &J {
        match &self.0.0 {
            Ok(job) => job,
            // `JobRef::from_watched` rejects undecodable jobs.
            Err(_) => unreachable!("a JobRef always holds a decoded job"),
        }
    }
}

impl<J> From<J> for JobRef<J> {
    fn from(job: J) -> Self {
        Self(Arc::new(DeserializeGuard(Ok(job))))
    }
}

impl<J> JobRef<J> {
    /// Whether both refer to the same version of the same job in memory.
    pub fn is_same_state(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn from_watched(job: Arc<WatchedJob<J>>) -> Option<Self> {
        job.0.is_ok().then_some(Self(job))
    }
}

impl<J> UnconfirmedWrite<J> {
    fn to_parts(&self) -> (JobRef<J>, Instant, bool) {
        (self.job.clone(), self.written_at, self.is_watched)
    }
}

impl<J: Resource<DynamicType = ()> + Clone + 'static> JobCache<J> {
    /// A cache over the store that [`job_stream`](crate::job_stream) fills.
    pub fn new(store: Store<WatchedJob<J>>) -> Self {
        Self {
            store,
            own_writes: RwLock::new(OwnWrites {
                unconfirmed: HashMap::new(),
                deleted: RecentSet::default(),
            }),
            change_notifier: JobNotifier::default(),
        }
    }

    /// The newest known version of a job; `None` if it does not exist or cannot be decoded.
    pub fn get(&self, key: &Key) -> Option<JobRef<J>> {
        // Read the unconfirmed write before the store: a write is only removed once the store has
        // it.
        let unconfirmed = self
            .lock_own_writes()
            .unconfirmed
            .get(key)
            .map(UnconfirmedWrite::to_parts);
        let stored = self.find_stored(key);
        let Some((own, written_at, is_watched)) = unconfirmed else {
            return stored.and_then(JobRef::from_watched);
        };
        match stored {
            // The unconfirmed write of a deleted job stays: it hides older versions while the watch
            // lags.
            None if written_at.elapsed() < CONFIRM_TIMEOUT => (!is_watched).then_some(own),
            Some(stored) if resource_version(&*stored) < resource_version(&*own) => Some(own),
            // The watch has caught up, or the job was deleted.
            stored => {
                let mut writes = self.lock_own_writes_mut();
                // Another write may have replaced the unconfirmed one since it was read.
                let current = writes.unconfirmed.get(key);
                if current.is_some_and(|current| current.job.is_same_state(&own)) {
                    writes.unconfirmed.remove(key);
                }
                stored.and_then(JobRef::from_watched)
            }
        }
    }

    /// All jobs except those that cannot be decoded.
    pub fn list_all(&self) -> Vec<JobRef<J>> {
        let unconfirmed: Vec<Key> = self.lock_own_writes().unconfirmed.keys().cloned().collect();
        let stored = self.store.state().into_iter();
        if unconfirmed.is_empty() {
            return stored.filter_map(JobRef::from_watched).collect();
        }
        let stored = stored.filter_map(|job| Some((job.namespace()?, job.name_any())));
        let keys: HashSet<Key> = stored.chain(unconfirmed).collect();
        keys.iter().filter_map(|key| self.get(key)).collect()
    }

    /// Stores the result of an own write or of a live read, and returns it.
    pub fn record_write(&self, mut job: J) -> JobRef<J> {
        // Managed fields are not used and are large; the store has none either.
        job.managed_fields_mut().clear();
        let key = (job.namespace().unwrap_or_default(), job.name_any());
        let uid = job.uid().unwrap_or_default();
        let job = JobRef::from(job);
        let stored = self.find_stored(&key);
        let mut writes = self.lock_own_writes_mut();
        let is_newer = writes
            .unconfirmed
            .get(&key)
            .is_none_or(|old| resource_version(&*old.job) < resource_version(&*job));
        if is_newer {
            if writes.unconfirmed.len() >= MAX_UNCONFIRMED_BEFORE_PRUNE {
                writes
                    .unconfirmed
                    .retain(|key, own| self.is_unconfirmed(key, own));
            }
            let own = UnconfirmedWrite {
                job: job.clone(),
                written_at: Instant::now(),
                is_watched: stored.is_some_and(|stored| stored.uid().as_ref() == Some(&uid))
                    || writes.deleted.contains(&uid),
            };
            writes.unconfirmed.insert(key.clone(), own);
        }
        drop(writes);
        self.change_notifier.notify(&key);
        job
    }

    /// A receiver that is notified of each change of a job after this call. It may also be notified
    /// without a change.
    pub fn subscribe_job(&self, key: &Key) -> watch::Receiver<()> {
        self.change_notifier.subscribe(key)
    }

    /// Updates the unconfirmed writes from a watch event, and notifies the receivers of the job.
    /// Call it after the store has applied the event.
    pub fn on_event(&self, event: &Event<WatchedJob<J>>) {
        let job = match event {
            Event::Apply(job) => {
                self.drop_confirmed_write(job);
                job
            }
            Event::Delete(job) => {
                self.record_deletion(job);
                job
            }
            Event::InitDone => return self.change_notifier.notify_all(),
            _ => return,
        };
        let key = (job.namespace().unwrap_or_default(), job.name_any());
        self.change_notifier.notify(&key);
    }

    /// Removes an unconfirmed write that the store has, so that the job is in memory only once.
    fn drop_confirmed_write(&self, job: &WatchedJob<J>) {
        let key = (job.namespace().unwrap_or_default(), job.name_any());
        let mut writes = self.lock_own_writes_mut();
        let own = writes.unconfirmed.get(&key);
        if own.is_some_and(|own| resource_version(&*own.job) <= resource_version(job)) {
            writes.unconfirmed.remove(&key);
        }
    }

    fn record_deletion(&self, job: &WatchedJob<J>) {
        let Some(uid) = job.uid() else {
            return;
        };
        let mut writes = self.lock_own_writes_mut();
        writes.deleted.insert(&uid);
        let key = (job.namespace().unwrap_or_default(), job.name_any());
        if let Some(own) = writes.unconfirmed.get_mut(&key)
            && own.job.uid() == Some(uid)
        {
            own.is_watched = true;
        }
    }

    /// Whether the watch has not shown a write and may still do so.
    fn is_unconfirmed(&self, key: &Key, own: &UnconfirmedWrite<J>) -> bool {
        match self.find_stored(key) {
            Some(stored) => resource_version(&*stored) < resource_version(&*own.job),
            None => own.written_at.elapsed() < CONFIRM_TIMEOUT,
        }
    }

    fn find_stored(&self, key: &Key) -> Option<Arc<WatchedJob<J>>> {
        self.store.get(&ObjectRef::new(&key.1).within(&key.0))
    }

    fn lock_own_writes(&self) -> RwLockReadGuard<'_, OwnWrites<J>> {
        self.own_writes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_own_writes_mut(&self) -> RwLockWriteGuard<'_, OwnWrites<J>> {
        self.own_writes
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The reflector store that the cache reads from.
    pub fn reflector_store(&self) -> &Store<WatchedJob<J>> {
        &self.store
    }
}

/// The `resourceVersion` of an object as a number; 0 if it is missing.
///
/// Versions grow over all objects of a resource, so a recreated object has a higher one. See
/// [resource
/// versions](https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions).
fn resource_version<K: Resource>(object: &K) -> u64 {
    object
        .meta()
        .resource_version
        .as_ref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use di_fixtures::Job;
    use kube::runtime::reflector;
    use serde_json::json;

    use super::*;

    fn job_json(version: &str, uid: &str) -> serde_json::Value {
        let metadata = json!({"uid": uid, "resourceVersion": version});
        Job::test().metadata(metadata).json()
    }

    fn decoded_job(version: &str, uid: &str) -> DIJob {
        serde_json::from_value(job_json(version, uid)).unwrap()
    }

    #[test]
    fn job_cache_never_returns_state_older_than_own_write() {
        let (reader, mut writer) = reflector::store();
        let cache: JobCache = JobCache::new(reader);
        let key = ("rl".to_owned(), "j".to_owned());
        let version = || cache.get(&key).and_then(|job| job.resource_version());
        let mut watched = |version: &str, uid: &str| {
            let job = serde_json::from_value(job_json(version, uid)).unwrap();
            writer.apply_watcher_event(&Event::Apply(job));
        };
        cache.record_write(decoded_job("10", "u"));
        assert_eq!(version().as_deref(), Some("10"), "not watched");
        watched("9", "u");
        assert_eq!(version().as_deref(), Some("10"));
        watched("11", "u");
        assert_eq!(version().as_deref(), Some("11"));
        cache.record_write(decoded_job("12", "u"));
        watched("13", "another");
        assert_eq!(version().as_deref(), Some("13"), "recreated");
        cache.record_write(decoded_job("15", "the next"));
        assert_eq!(version().as_deref(), Some("15"), "recreated again");
        watched("14", "another");
        assert_eq!(version().as_deref(), Some("15"), "the watch lags");
    }

    #[test]
    fn unwatched_own_write_is_returned_until_deletion_is_seen() {
        let (reader, mut writer) = reflector::store();
        let cache: JobCache = JobCache::new(reader);
        let key = ("rl".to_owned(), "j".to_owned());
        let known = || {
            let by_key = cache.get(&key).and_then(|job| job.uid());
            let all: Vec<_> = cache
                .list_all()
                .iter()
                .filter_map(|job| job.uid())
                .collect();
            assert_eq!(Vec::from_iter(by_key.clone()), all);
            by_key
        };
        let mut show = |event: Event<_>| {
            writer.apply_watcher_event(&event);
            cache.on_event(&event);
        };
        let watched =
            |version: &str, uid: &str| serde_json::from_value(job_json(version, uid)).unwrap();
        cache.record_write(decoded_job("10", "u"));
        assert_eq!(known().as_deref(), Some("u"));
        // A previous job of the same name.
        show(Event::Delete(watched("9", "before")));
        assert_eq!(known().as_deref(), Some("u"));
        show(Event::Delete(watched("12", "u")));
        assert_eq!(known(), None);
        // The response of the write arrives late.
        cache.record_write(decoded_job("11", "u"));
        assert_eq!(known(), None);
        cache.record_write(decoded_job("13", "next"));
        assert_eq!(known().as_deref(), Some("next"));
        show(Event::Apply(watched("13", "next")));
        cache.record_write(decoded_job("14", "next"));
        show(Event::Delete(watched("15", "next")));
        assert_eq!(known(), None);
    }

    #[test]
    fn many_unconfirmed_writes_are_pruned_once_watched() {
        let (reader, mut writer) = reflector::store();
        let cache: JobCache = JobCache::new(reader);
        let named = |i: usize, version: &str| {
            let mut job = job_json(version, &i.to_string());
            job["metadata"]["name"] = i.to_string().into();
            job
        };
        let long_ago = Instant::now().checked_sub(CONFIRM_TIMEOUT * 2).unwrap();
        for i in 0..MAX_UNCONFIRMED_BEFORE_PRUNE {
            // The watch lags for every second job, for longer than the timeout.
            let version = if i % 2 == 0 { "9" } else { "10" };
            let watched = serde_json::from_value(named(i, version)).unwrap();
            writer.apply_watcher_event(&Event::Apply(watched));
            cache.record_write(serde_json::from_value(named(i, "10")).unwrap());
        }
        for own in cache.own_writes.write().unwrap().unconfirmed.values_mut() {
            own.written_at = long_ago;
        }
        cache.record_write(decoded_job("20", "u"));
        let kept = cache.lock_own_writes().unconfirmed.len();
        assert_eq!(kept, MAX_UNCONFIRMED_BEFORE_PRUNE / 2 + 1);
        let show = |version: &str| {
            let watched = serde_json::from_value(named(0, version)).unwrap();
            cache.on_event(&Event::Apply(watched));
            cache.lock_own_writes().unconfirmed.len()
        };
        assert_eq!(show("9"), kept, "the watch still lags");
        let first = ("rl".to_owned(), "0".to_owned());
        let newest = cache.get(&first).and_then(|job| job.resource_version());
        assert_eq!(newest.as_deref(), Some("10"));
        assert_eq!(show("10"), kept - 1);
    }
}
