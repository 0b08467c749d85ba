//! Lists of jobs, rendered once and kept until the job, one of its pods, or the time changes what they tell.
//!
//! Coordinators ask every second, and mostly nothing has changed. Whether it has is looked up for each request, in the same caches that a
//! list is made from, so that an answer is never older than they are.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, PoisonError, RwLock},
};

use axum::body::Bytes;
use di_cache::{JobRef, Key};
use jiff::Timestamp;

use crate::{
    error::{Error, Result},
    wire::Replicas,
};

/// What stands before and after the data of a successful answer without message.
const BEFORE: &[u8] = br#"{"success":true,"code":0,"message":"","data":"#;
const AFTER: &[u8] = b"}";

/// A list of one job, as it is sent.
#[derive(Debug)]
pub(crate) struct Rendered {
    /// The state of the job that it was made from, and the revision of its pods.
    job: JobRef,
    pods: u64,
    /// From then on the list may be another even if nothing else changes.
    until: Option<Timestamp>,
    coordinator: String,
    envelope: Bytes,
    record: Range<usize>,
}

/// The lists of all jobs that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Answers(RwLock<HashMap<Key, Arc<Rendered>>>);

impl Rendered {
    /// Renders a list that was made of this state of a job and this revision of its pods, and holds until then.
    pub(crate) fn new(
        job: JobRef,
        pods: u64,
        until: Option<Timestamp>,
        list: &Replicas,
    ) -> Result<Self> {
        let mut bytes = BEFORE.to_vec();
        serde_json::to_writer(&mut bytes, list)
            .map_err(|error| Error::Invalid(error.to_string()))?;
        let record = BEFORE.len()..bytes.len();
        bytes.extend_from_slice(AFTER);
        // Kept for long, perhaps.
        bytes.shrink_to_fit();
        Ok(Self {
            job,
            pods,
            until,
            coordinator: list.coordinator.clone(),
            envelope: bytes.into(),
            record,
        })
    }

    /// The whole answer.
    pub(crate) fn envelope(&self) -> Bytes {
        self.envelope.clone()
    }

    fn record(&self) -> &[u8] {
        &self.envelope[self.record.clone()]
    }

    fn holds(&self, job: &JobRef, pods: u64, now: Timestamp) -> bool {
        self.pods == pods && self.job.is(job) && self.until.is_none_or(|until| now < until)
    }
}

impl Answers {
    /// The list that was made from this.
    pub(crate) fn get(
        &self,
        key: &Key,
        job: &JobRef,
        pods: u64,
        now: Timestamp,
    ) -> Option<Arc<Rendered>> {
        let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let list = kept.get(key);
        list.filter(|list| list.holds(job, pods, now)).cloned()
    }

    /// Keeps a list. When there are many, those of jobs that `is_there` does not know are dropped.
    pub(crate) fn keep(&self, key: Key, list: Arc<Rendered>, is_there: impl Fn(&Key) -> bool) {
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == kept.capacity() {
            kept.retain(|key, _| is_there(key));
        }
        kept.insert(key, list);
    }
}

/// An answer of several lists, sorted by namespace and coordinator.
pub(crate) fn join(mut lists: Vec<(Key, Arc<Rendered>)>) -> Bytes {
    lists.sort_unstable_by(|(a, one), (b, other)| {
        (&a.0, &one.coordinator).cmp(&(&b.0, &other.coordinator))
    });
    let length: usize = lists.iter().map(|(_, list)| list.record.len() + 1).sum();
    let mut bytes = Vec::with_capacity(BEFORE.len() + length + 2 + AFTER.len());
    bytes.extend_from_slice(BEFORE);
    bytes.push(b'[');
    for (i, (_, list)) in lists.iter().enumerate() {
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
    use di_plan::Listing;
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::Success;

    fn rendered(name: &str, job: &JobRef, until: Option<Timestamp>) -> (Key, Arc<Rendered>) {
        let key = ("ns".to_owned(), name.to_owned());
        let list = Replicas::new(&key, Listing::default());
        let list = Rendered::new(job.clone(), 1, until, &list).unwrap();
        (key, Arc::new(list))
    }

    fn job() -> JobRef {
        let job = json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
            "metadata": {"name": "j"}, "spec": {"coordinator": {"template": {}}},
        });
        Arc::new(serde_json::from_value::<di_api::DIJob>(job).unwrap()).into()
    }

    #[test]
    fn a_list_is_kept_until_its_job_its_pods_or_the_time_changes_it() {
        let (job, same) = (job(), job());
        let now = Timestamp::UNIX_EPOCH;
        let later = now + jiff::SignedDuration::from_secs(1);
        let answers = Answers::default();
        let (key, list) = rendered("j", &job, Some(later));
        answers.keep(key.clone(), list, |_| true);
        assert!(answers.get(&key, &job, 1, now).is_some());
        assert!(answers.get(&key, &job, 2, now).is_none(), "other pods");
        assert!(answers.get(&key, &same, 1, now).is_none(), "a newer read");
        assert!(answers.get(&key, &job, 1, later).is_none(), "time passed");
    }

    #[test]
    fn lists_of_jobs_that_are_gone_are_dropped() {
        let job = job();
        let answers = Answers::default();
        for i in 0..1000 {
            let (key, list) = rendered(&i.to_string(), &job, None);
            let last = key.clone();
            answers.keep(key, list, move |key| *key == last);
        }
        assert!(answers.0.read().unwrap().len() < 100);
    }

    #[test]
    fn answers_are_the_envelope_as_it_is_serialized() {
        let job = job();
        let lists = ["b", "a-b", "a"].map(|name| rendered(name, &job, None));
        let envelope = |data: Value| serde_json::to_vec(&Success::new("", data)).unwrap();
        let record =
            |(key, _): &(Key, Arc<Rendered>)| json!(Replicas::new(key, Listing::default()));
        let one: Value = serde_json::from_slice(&lists[0].1.envelope()).unwrap();
        assert_eq!(
            one,
            serde_json::from_slice::<Value>(&envelope(record(&lists[0]))).unwrap()
        );
        let sorted = [&lists[1], &lists[2], &lists[0]].map(record);
        let all: Value = serde_json::from_slice(&join(lists.to_vec())).unwrap();
        assert_eq!(
            all,
            serde_json::from_slice::<Value>(&envelope(json!(sorted))).unwrap()
        );
    }
}
