use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, PoisonError, RwLock},
};

use di_api::DIJob;
use kube::{
    Resource, ResourceExt,
    core::DeserializeGuard,
    runtime::reflector::{ObjectRef, Store},
};

use crate::Key;

/// A job as it is watched: one that cannot be decoded does not stop the others.
pub type WatchedJob = DeserializeGuard<DIJob>;

/// Jobs, fed by a watch and by one's own writes.
#[derive(Debug)]
pub struct JobCache {
    store: Store<WatchedJob>,
    /// What our writes returned, until the watch has caught up.
    written: RwLock<HashMap<Key, Arc<DIJob>>>,
}

/// A job of the cache.
#[derive(Clone, Debug)]
pub struct JobRef(Source);

#[derive(Clone, Debug)]
enum Source {
    Watched(Arc<WatchedJob>),
    Written(Arc<DIJob>),
}

impl Deref for JobRef {
    type Target = DIJob;

    fn deref(&self) -> &DIJob {
        match &self.0 {
            Source::Written(job) => job,
            Source::Watched(job) => match &job.0 {
                Ok(job) => job,
                // `JobRef::watched` lets only decoded jobs in.
                Err(_) => unreachable!("an undecodable job is never handed out"),
            },
        }
    }
}

impl JobRef {
    fn watched(job: Arc<WatchedJob>) -> Option<Self> {
        job.0.is_ok().then_some(Self(Source::Watched(job)))
    }
}

impl JobCache {
    /// A cache over the store that [`job_stream`](crate::job_stream) fills.
    pub fn new(store: Store<WatchedJob>) -> Self {
        Self {
            store,
            written: RwLock::default(),
        }
    }

    /// The newest known state of a job; nothing for jobs that are not there or cannot be decoded.
    pub fn get(&self, key: &Key) -> Option<JobRef> {
        let watched = self
            .store
            .get(&ObjectRef::new(&key.1).within(&key.0))
            .and_then(JobRef::watched);
        let written = self
            .written
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .cloned();
        let Some(written) = written else {
            return watched;
        };
        match watched {
            Some(watched)
                if watched.uid() == written.uid()
                    && resource_version(&*watched) < resource_version(&*written) =>
            {
                Some(JobRef(Source::Written(written)))
            }
            // The watch has caught up, or the job is gone.
            watched => {
                self.written
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(key);
                watched
            }
        }
    }

    /// All jobs that could be decoded.
    pub fn all(&self) -> Vec<JobRef> {
        self.store
            .state()
            .iter()
            .filter_map(|job| self.get(&(job.namespace()?, job.name_any())))
            .collect()
    }

    /// Puts in what a write of ours, or a fresh read, returned.
    pub fn written(&self, job: Arc<DIJob>) {
        let key = (job.namespace().unwrap_or_default(), job.name_any());
        let mut written = self.written.write().unwrap_or_else(PoisonError::into_inner);
        let newer = written.get(&key).is_none_or(|old| {
            old.uid() != job.uid() || resource_version(&**old) < resource_version(&*job)
        });
        if newer {
            written.insert(key, job);
        }
    }

    /// The store behind the cache.
    pub fn store(&self) -> &Store<WatchedJob> {
        &self.store
    }
}

/// Version of an object as a number; they grow, and are compared only between states of one object.
fn resource_version<K: Resource>(object: &K) -> u64 {
    object
        .meta()
        .resource_version
        .as_ref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}
