use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::{Duration, Instant},
};

use di_api::DIJob;
use kube::{
    Resource, ResourceExt,
    core::DeserializeGuard,
    runtime::reflector::{ObjectRef, Store},
};

use crate::{Key, WatchHealth};

/// A job as it is watched, whole or as a view: one that cannot be decoded does not stop the others.
pub type WatchedJob<J = DIJob> = DeserializeGuard<J>;

/// Jobs, fed by a watch and by one's own writes.
#[derive(Debug)]
pub struct JobCache<J: Resource<DynamicType = ()> + 'static = DIJob> {
    store: Store<WatchedJob<J>>,
    /// What our writes returned and when, until the watch has caught up.
    written: RwLock<Written<J>>,
    health: WatchHealth,
}

type Written<J> = HashMap<Key, (JobRef<J>, Instant)>;

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

impl<J: Resource<DynamicType = ()> + Clone + 'static> JobCache<J> {
    /// A cache over the store that [`job_stream`](crate::job_stream) fills.
    pub fn new(store: Store<WatchedJob<J>>) -> Self {
        Self {
            store,
            written: RwLock::default(),
            health: WatchHealth::default(),
        }
    }

    /// The newest known state of a job; nothing for jobs that are not there or cannot be decoded.
    pub fn get(&self, key: &Key) -> Option<JobRef<J>> {
        let watched = self
            .store
            .get(&ObjectRef::new(&key.1).within(&key.0))
            .and_then(JobRef::watched);
        let written = self.lock_written().get(key).cloned();
        let Some((written, at)) = written else {
            return watched;
        };
        match watched {
            // Not seen yet, or gone; an older state of it must not come up should the watch be behind.
            None if at.elapsed() < KEPT_WITHOUT_WATCH => None,
            Some(watched) if resource_version(&*watched) < resource_version(&*written) => {
                Some(written)
            }
            // The watch has caught up, or the job is gone.
            watched => {
                let mut all = self.written.write().unwrap_or_else(PoisonError::into_inner);
                // Another write may have come meanwhile.
                if all.get(key).is_some_and(|(now, _)| now.is(&written)) {
                    all.remove(key);
                }
                watched
            }
        }
    }

    /// All jobs that could be decoded.
    pub fn all(&self) -> Vec<JobRef<J>> {
        let watched = self.store.state().into_iter();
        if self.lock_written().is_empty() {
            return watched.filter_map(JobRef::watched).collect();
        }
        watched
            .filter_map(|job| self.get(&(job.namespace()?, job.name_any())))
            .collect()
    }

    /// Puts in what a write of ours, or a fresh read, returned, and hands it out.
    pub fn written(&self, job: J) -> JobRef<J> {
        let key = (job.namespace().unwrap_or_default(), job.name_any());
        let job = JobRef::from(job);
        let mut written = self.written.write().unwrap_or_else(PoisonError::into_inner);
        let newer = written
            .get(&key)
            .is_none_or(|(old, _)| resource_version(&**old) < resource_version(&*job));
        if newer {
            if written.len() >= WRITTEN_UNPRUNED {
                written.retain(|_, (_, at)| at.elapsed() < KEPT_WITHOUT_WATCH);
            }
            written.insert(key, (job.clone(), Instant::now()));
        }
        job
    }

    fn lock_written(&self) -> RwLockReadGuard<'_, Written<J>> {
        self.written.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the watch works; who drives it tells.
    pub fn health(&self) -> &WatchHealth {
        &self.health
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
    use kube::runtime::{reflector, watcher::Event};
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
        assert_eq!(version(), None, "not seen yet, or gone");
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
}
