use std::{
    collections::{HashMap, HashSet},
    ops::Deref,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
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

use crate::{Key, lately::Lately};

/// A job as it is watched, whole or as a view: one that cannot be decoded does not stop the others.
pub type WatchedJob<J = DIJob> = DeserializeGuard<J>;

/// Jobs, fed by a watch and by one's own writes.
#[derive(Debug)]
pub struct JobCache<J: Resource<DynamicType = ()> + 'static = DIJob> {
    store: Store<WatchedJob<J>>,
    written: RwLock<Written<J>>,
}

#[derive(Debug)]
struct Written<J> {
    /// What our writes returned, until the watch has caught up.
    jobs: HashMap<Key, Own<J>>,
    /// UIDs seen deleted lately: the answer of a write may come after the watch has seen the job go.
    gone: Lately,
}

/// What a write of ours returned.
#[derive(Debug)]
struct Own<J> {
    job: JobRef<J>,
    at: Instant,
    /// Whether the watch has shown the job: if it does not show it any more, it is gone.
    shown: bool,
}

/// The watch catches up within this time, or the job is gone.
const KEPT_WITHOUT_WATCH: Duration = Duration::from_secs(60);
/// Above this many, what is kept too long is looked for.
const WRITTEN_UNPRUNED: usize = 256;

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
            // `JobRef::watched` lets only decoded jobs in.
            Err(_) => unreachable!("an undecodable job is never handed out"),
        }
    }
}

impl<J> From<J> for JobRef<J> {
    fn from(job: J) -> Self {
        Self(Arc::new(DeserializeGuard(Ok(job))))
    }
}

impl<J> JobRef<J> {
    /// Whether this is the same state of the same job, as it was handed out before.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn watched(job: Arc<WatchedJob<J>>) -> Option<Self> {
        job.0.is_ok().then_some(Self(job))
    }
}

impl<J> Own<J> {
    fn parts(&self) -> (JobRef<J>, Instant, bool) {
        (self.job.clone(), self.at, self.shown)
    }
}

impl<J: Resource<DynamicType = ()> + Clone + 'static> JobCache<J> {
    /// A cache over the store that [`job_stream`](crate::job_stream) fills.
    pub fn new(store: Store<WatchedJob<J>>) -> Self {
        Self {
            store,
            written: RwLock::new(Written {
                jobs: HashMap::new(),
                gone: Lately::default(),
            }),
        }
    }

    /// The newest known state of a job; nothing for jobs that are not there or cannot be decoded.
    pub fn get(&self, key: &Key) -> Option<JobRef<J>> {
        // Before the store, which is no older than what is forgotten here.
        let written = self.lock_written().jobs.get(key).map(Own::parts);
        let stored = self.stored(key);
        let Some((own, at, shown)) = written else {
            return stored.and_then(JobRef::watched);
        };
        match stored {
            // Of one that is gone no older state must come up should the watch be behind.
            None if at.elapsed() < KEPT_WITHOUT_WATCH => (!shown).then_some(own),
            Some(stored) if resource_version(&*stored) < resource_version(&*own) => Some(own),
            // The watch has caught up, or the job is gone.
            stored => {
                let mut all = self.written.write().unwrap_or_else(PoisonError::into_inner);
                // Another write may have come meanwhile.
                if all.jobs.get(key).is_some_and(|now| now.job.is(&own)) {
                    all.jobs.remove(key);
                }
                stored.and_then(JobRef::watched)
            }
        }
    }

    /// All jobs that could be decoded.
    pub fn all(&self) -> Vec<JobRef<J>> {
        let written: Vec<Key> = self.lock_written().jobs.keys().cloned().collect();
        let stored = self.store.state().into_iter();
        if written.is_empty() {
            return stored.filter_map(JobRef::watched).collect();
        }
        let stored = stored.filter_map(|job| Some((job.namespace()?, job.name_any())));
        let keys: HashSet<Key> = stored.chain(written).collect();
        keys.iter().filter_map(|key| self.get(key)).collect()
    }

    /// Puts in what a write of ours, or a fresh read, returned, and hands it out.
    pub fn written(&self, mut job: J) -> JobRef<J> {
        // As in the store, where nobody needs them either.
        job.managed_fields_mut().clear();
        let key = (job.namespace().unwrap_or_default(), job.name_any());
        let uid = job.uid().unwrap_or_default();
        let job = JobRef::from(job);
        let stored = self.stored(&key);
        let mut written = self.written.write().unwrap_or_else(PoisonError::into_inner);
        let newer = written
            .jobs
            .get(&key)
            .is_none_or(|old| resource_version(&*old.job) < resource_version(&*job));
        if newer {
            if written.jobs.len() >= WRITTEN_UNPRUNED {
                written.jobs.retain(|key, own| self.is_behind(key, own));
            }
            let own = Own {
                job: job.clone(),
                at: Instant::now(),
                shown: stored.is_some_and(|stored| stored.uid().as_ref() == Some(&uid))
                    || written.gone.contains(&uid),
            };
            written.jobs.insert(key, own);
        }
        job
    }

    /// Takes note of what the watch shows, once the store has it.
    pub fn saw(&self, event: &Event<WatchedJob<J>>) {
        match event {
            Event::Apply(job) => self.caught_up(job),
            Event::Delete(job) => self.went(job),
            _ => {}
        }
    }

    /// A job of ours is as large as that of the store: it is not there twice for longer than it must.
    fn caught_up(&self, job: &WatchedJob<J>) {
        let key = (job.namespace().unwrap_or_default(), job.name_any());
        let mut written = self.written.write().unwrap_or_else(PoisonError::into_inner);
        let own = written.jobs.get(&key);
        if own.is_some_and(|own| resource_version(&*own.job) <= resource_version(job)) {
            written.jobs.remove(&key);
        }
    }

    fn went(&self, job: &WatchedJob<J>) {
        let Some(uid) = job.uid() else {
            return;
        };
        let mut written = self.written.write().unwrap_or_else(PoisonError::into_inner);
        written.gone.add(&uid);
        let key = (job.namespace().unwrap_or_default(), job.name_any());
        if let Some(own) = written.jobs.get_mut(&key)
            && own.job.uid() == Some(uid)
        {
            own.shown = true;
        }
    }

    /// Whether the watch has yet to show a write.
    fn is_behind(&self, key: &Key, own: &Own<J>) -> bool {
        match self.stored(key) {
            Some(stored) => resource_version(&*stored) < resource_version(&*own.job),
            None => own.at.elapsed() < KEPT_WITHOUT_WATCH,
        }
    }

    fn stored(&self, key: &Key) -> Option<Arc<WatchedJob<J>>> {
        self.store.get(&ObjectRef::new(&key.1).within(&key.0))
    }

    fn lock_written(&self) -> RwLockReadGuard<'_, Written<J>> {
        self.written.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store behind the cache.
    pub fn store(&self) -> &Store<WatchedJob<J>> {
        &self.store
    }
}

/// Version of an object as a number. They grow, also from an object to the next of its name:
/// [Kubernetes](https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions) counts those of one resource together.
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
    use kube::runtime::reflector;
    use serde_json::json;

    use super::*;

    fn job(version: &str, uid: &str) -> serde_json::Value {
        json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
            "metadata": {"name": "j", "namespace": "ns", "uid": uid, "resourceVersion": version},
            "spec": {"coordinator": {"template": {}}},
        })
    }

    fn written(version: &str, uid: &str) -> DIJob {
        serde_json::from_value(job(version, uid)).unwrap()
    }

    #[test]
    fn no_state_older_than_ones_own_write_comes_up() {
        let (reader, mut writer) = reflector::store();
        let cache: JobCache = JobCache::new(reader);
        let key = ("ns".to_owned(), "j".to_owned());
        let version = || cache.get(&key).and_then(|job| job.resource_version());
        let mut watched = |version: &str, uid: &str| {
            let job = serde_json::from_value(job(version, uid)).unwrap();
            writer.apply_watcher_event(&Event::Apply(job));
        };
        cache.written(written("10", "u"));
        assert_eq!(version().as_deref(), Some("10"), "not seen yet");
        watched("9", "u");
        assert_eq!(version().as_deref(), Some("10"));
        watched("11", "u");
        assert_eq!(version().as_deref(), Some("11"));
        cache.written(written("12", "u"));
        watched("13", "another");
        assert_eq!(version().as_deref(), Some("13"), "made anew");
        cache.written(written("15", "the next"));
        assert_eq!(version().as_deref(), Some("15"), "made anew once more");
        watched("14", "another");
        assert_eq!(version().as_deref(), Some("15"), "the watch is behind");
    }

    #[test]
    fn a_job_that_only_ones_own_write_knows_is_handed_out_until_it_was_seen_going() {
        let (reader, mut writer) = reflector::store();
        let cache: JobCache = JobCache::new(reader);
        let key = ("ns".to_owned(), "j".to_owned());
        let known = || {
            let by_key = cache.get(&key).and_then(|job| job.uid());
            let all: Vec<_> = cache.all().iter().filter_map(|job| job.uid()).collect();
            assert_eq!(Vec::from_iter(by_key.clone()), all);
            by_key
        };
        let mut show = |event: Event<_>| {
            writer.apply_watcher_event(&event);
            cache.saw(&event);
        };
        let watched = |version: &str, uid: &str| serde_json::from_value(job(version, uid)).unwrap();
        cache.written(written("10", "u"));
        assert_eq!(known().as_deref(), Some("u"));
        // One of its name that was there before.
        show(Event::Delete(watched("9", "before")));
        assert_eq!(known().as_deref(), Some("u"));
        show(Event::Delete(watched("12", "u")));
        assert_eq!(known(), None);
        // The answer comes late.
        cache.written(written("11", "u"));
        assert_eq!(known(), None);
        cache.written(written("13", "next"));
        assert_eq!(known().as_deref(), Some("next"));
        show(Event::Apply(watched("13", "next")));
        cache.written(written("14", "next"));
        show(Event::Delete(watched("15", "next")));
        assert_eq!(known(), None);
    }

    #[test]
    fn of_many_writes_those_are_forgotten_that_the_watch_has_shown() {
        let (reader, mut writer) = reflector::store();
        let cache: JobCache = JobCache::new(reader);
        let named = |i: usize, version: &str| {
            let mut job = job(version, &i.to_string());
            job["metadata"]["name"] = i.to_string().into();
            job
        };
        let long_ago = Instant::now().checked_sub(KEPT_WITHOUT_WATCH * 2).unwrap();
        for i in 0..WRITTEN_UNPRUNED {
            // Of every other the watch is behind, and of all these long so.
            let version = if i % 2 == 0 { "9" } else { "10" };
            let watched = serde_json::from_value(named(i, version)).unwrap();
            writer.apply_watcher_event(&Event::Apply(watched));
            cache.written(serde_json::from_value(named(i, "10")).unwrap());
        }
        for own in cache.written.write().unwrap().jobs.values_mut() {
            own.at = long_ago;
        }
        cache.written(written("20", "u"));
        let kept = cache.lock_written().jobs.len();
        assert_eq!(kept, WRITTEN_UNPRUNED / 2 + 1);
        let show = |version: &str| {
            let watched = serde_json::from_value(named(0, version)).unwrap();
            cache.saw(&Event::Apply(watched));
            cache.lock_written().jobs.len()
        };
        assert_eq!(show("9"), kept, "still behind");
        let first = ("ns".to_owned(), "0".to_owned());
        let newest = cache.get(&first).and_then(|job| job.resource_version());
        assert_eq!(newest.as_deref(), Some("10"));
        assert_eq!(show("10"), kept - 1);
    }
}
