//! Caches the rendered replica list of each job until the job, its pods or the time changes it.
//!
//! Coordinators poll every second, and mostly nothing has changed. Each request compares the versions
//! of the job and its pods with the watch caches, so a cached list is never older than they are.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, PoisonError, RwLock},
};

use axum::body::Bytes;
use di_cache::{JobView, Key};
use jiff::Timestamp;

use crate::{
    error::{Error, Result},
    wire::{ListedReplicas, Replicas},
};

type JobRef = di_cache::JobRef<JobView>;

/// The envelope before and after the data of a successful response.
const BEFORE: &[u8] = br#"{"success":true,"code":0,"message":"","data":"#;
const AFTER: &[u8] = b"}";

/// The rendered list of one job.
#[derive(Debug)]
pub(crate) struct CachedList {
    key: Key,
    coordinator: String,
    /// The version of the job and the revision of its pods that the list was rendered from.
    job: JobRef,
    pods: u64,
    /// The list expires at this time even if nothing else changes.
    until: Option<Timestamp>,
    membership: Option<Membership>,
    envelope: Bytes,
    record: Range<usize>,
}

/// The generation of a list of recorded members, and whether the list is usable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Membership {
    pub(crate) generation: i64,
    /// Whether the members are the replicas that can be used now.
    pub(crate) is_current: bool,
}

/// The lists of all requested jobs, by job UID.
#[derive(Debug, Default)]
pub(crate) struct ListCache(RwLock<HashMap<String, Arc<CachedList>>>);

impl CachedList {
    /// Renders a list from these versions of job and pods; it expires at `until`.
    pub(crate) fn new(
        key: Key,
        job: JobRef,
        pods: u64,
        until: Option<Timestamp>,
        list: Replicas,
        membership: Option<Membership>,
    ) -> Result<Self> {
        let coordinator = list.coordinator.clone();
        let list = ListedReplicas {
            replicas: list,
            generation: membership.map(|membership| membership.generation),
        };
        let mut bytes = BEFORE.to_vec();
        serde_json::to_writer(&mut bytes, &list)
            .map_err(|error| Error::Invalid(error.to_string()))?;
        let record = BEFORE.len()..bytes.len();
        bytes.extend_from_slice(AFTER);
        // The list may be cached for a long time.
        bytes.shrink_to_fit();
        Ok(Self {
            key,
            coordinator,
            job,
            pods,
            until,
            membership,
            envelope: bytes.into(),
            record,
        })
    }

    /// Returns the whole response body.
    pub(crate) fn envelope(&self) -> Bytes {
        self.envelope.clone()
    }

    /// The membership that the list shows; `None` for other lists.
    pub(crate) fn membership(&self) -> Option<Membership> {
        self.membership
    }

    /// The ETag of a list of members. It is the same in all replicas of the endpoint.
    pub(crate) fn etag(&self) -> Option<String> {
        let uid = self.job.metadata.uid.as_deref().unwrap_or_default();
        let membership = self.membership?;
        Some(format!(r#""{uid}.{}""#, membership.generation))
    }

    fn record(&self) -> &[u8] {
        &self.envelope[self.record.clone()]
    }
}

impl ListCache {
    /// Returns the list if it is current. `revision` returns the current revision of the pods.
    pub(crate) fn get(
        &self,
        job: &JobRef,
        now: Timestamp,
        revision: impl FnOnce(&Key) -> u64,
    ) -> Option<Arc<CachedList>> {
        let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let list = kept.get(job.metadata.uid.as_deref()?)?;
        let is_current = list.job.is_same_state(job)
            && list.until.is_none_or(|until| now < until)
            && list.pods == revision(&list.key);
        is_current.then(|| list.clone())
    }

    /// Stores a list. When the map is full, drops lists of jobs that were deleted or have changed.
    pub(crate) fn insert(&self, list: Arc<CachedList>, newest: impl Fn(&Key) -> Option<JobRef>) {
        let Some(uid) = list.job.metadata.uid.clone() else {
            return;
        };
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == kept.capacity() {
            kept.retain(|_, list| {
                newest(&list.key).is_some_and(|job| job.is_same_state(&list.job))
            });
        }
        kept.insert(uid, list);
    }
}

/// Joins lists into one response body, sorted by namespace and coordinator.
pub(crate) fn join_lists(mut lists: Vec<Arc<CachedList>>) -> Bytes {
    lists.sort_unstable_by(|a, b| (&a.key.0, &a.coordinator).cmp(&(&b.key.0, &b.coordinator)));
    let length: usize = lists.iter().map(|list| list.record.len() + 1).sum();
    let mut bytes = Vec::with_capacity(BEFORE.len() + length + 2 + AFTER.len());
    bytes.extend_from_slice(BEFORE);
    bytes.push(b'[');
    for (i, list) in lists.iter().enumerate() {
        if i > 0 {
            bytes.push(b',');
        }
        bytes.extend_from_slice(list.record());
    }
    bytes.push(b']');
    bytes.extend_from_slice(AFTER);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use di_fixtures::Job;
    use di_plan::Listing;
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::Success;

    fn cached_list(name: &str, job: &JobRef, until: Option<Timestamp>) -> Arc<CachedList> {
        let key = ("ns".to_owned(), name.to_owned());
        let list = Replicas::new(&key, Listing::default());
        Arc::new(CachedList::new(key, job.clone(), 1, until, list, None).unwrap())
    }

    fn job(uid: &str) -> JobRef {
        Job::test().uid(uid).build::<JobView>().into()
    }

    #[test]
    fn list_is_cached_until_job_pods_or_time_change() {
        let (job, newer) = (job("u"), job("u"));
        let now = Timestamp::UNIX_EPOCH;
        let later = now + jiff::SignedDuration::from_secs(1);
        let cache = ListCache::default();
        cache.insert(cached_list("j", &job, Some(later)), |_| None);
        assert!(cache.get(&job, now, |_| 1).is_some());
        assert!(cache.get(&job, now, |_| 2).is_none(), "other pods");
        assert!(cache.get(&newer, now, |_| 1).is_none());
        assert!(cache.get(&job, later, |_| 1).is_none(), "time passed");
    }

    #[test]
    fn lists_of_deleted_or_changed_jobs_are_dropped() {
        let cache = ListCache::default();
        let first = job("0");
        for i in 0..1000 {
            let job = job(&i.to_string());
            let newest = |key: &Key| (key.1 == "0").then(|| first.clone());
            let job = if i == 0 { &first } else { &job };
            cache.insert(cached_list(&i.to_string(), job, None), newest);
        }
        assert!(cache.0.read().unwrap().len() < 100);
        assert!(cache.get(&first, Timestamp::UNIX_EPOCH, |_| 1).is_some());
    }

    #[test]
    fn list_response_equals_serialized_envelope() {
        let job = job("u");
        let lists = ["b", "a-b", "a"].map(|name| cached_list(name, &job, None));
        let envelope = |data: Value| json!(Success::new("", data));
        let record = |list: &Arc<CachedList>| json!(Replicas::new(&list.key, Listing::default()));
        let sent = |bytes: Bytes| serde_json::from_slice::<Value>(&bytes).unwrap();
        assert_eq!(sent(lists[0].envelope()), envelope(record(&lists[0])));
        let sorted = [&lists[1], &lists[2], &lists[0]].map(record);
        assert_eq!(sent(join_lists(lists.to_vec())), envelope(json!(sorted)));
    }
}
