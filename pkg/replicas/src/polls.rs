//! Long polls: list requests that wait until the membership of a job changes.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::Uri;
use di_cache::Key;
use tokio::sync::watch;

use crate::{
    error::{Error, Result},
    versions::is_legacy_path,
};

/// Maximum wait of a long poll. An old connection is closed later than this.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(30);
/// Maximum number of waiting polls of a job.
pub(crate) const MAX_POLLS_PER_JOB: usize = 256;

/// Marks the response of a long poll: its duration says nothing about the endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongPolled;

/// The waiting polls.
#[derive(Debug, Default)]
pub(crate) struct WaitingPolls {
    /// Number of waiting polls by job.
    counts: Mutex<HashMap<Key, usize>>,
    is_closed: watch::Sender<bool>,
}

/// One waiting poll.
pub(crate) struct WaitingPoll<'a> {
    polls: &'a WaitingPolls,
    job: &'a Key,
}

impl WaitingPolls {
    /// Ends all waits, because the endpoint shuts down.
    pub(crate) fn close(&self) {
        self.is_closed.send_replace(true);
    }

    /// Waits until the endpoint shuts down.
    pub(crate) async fn wait_for_close(&self) {
        let mut is_closed = self.is_closed.subscribe();
        is_closed.wait_for(|is_closed| *is_closed).await.ok();
    }

    /// Number of waiting polls of all jobs.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.lock().values().sum()
    }

    /// Counts a poll. Fails if the job or all jobs have too many.
    pub(crate) fn enter<'a>(&'a self, job: &'a Key, max: usize) -> Result<WaitingPoll<'a>> {
        let mut counts = self.lock();
        let of_all_jobs: usize = counts.values().sum();
        let of_job = counts.get(job).copied().unwrap_or(0);
        if of_job >= MAX_POLLS_PER_JOB || of_all_jobs >= max {
            return Err(Error::TooManyRequests(format!(
                "too many requests wait for a change of the list of DIJob {}",
                job.1
            )));
        }
        counts.insert(job.clone(), of_job + 1);
        Ok(WaitingPoll { polls: self, job })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingPoll<'_> {
    fn drop(&mut self) {
        let mut counts = self.polls.lock();
        let others = counts
            .get(self.job)
            .map_or(0, |count| count.saturating_sub(1));
        if others == 0 {
            counts.remove(self.job);
        } else {
            counts.insert(self.job.clone(), others);
        }
    }
}

/// How much longer than its timeout a request with this URI may take.
pub(crate) fn extra_time(uri: &Uri) -> Duration {
    let query = uri.query().unwrap_or_default();
    let is_poll = !is_legacy_path(uri.path()) && query.to_ascii_lowercase().contains("wait=");
    if is_poll { MAX_WAIT } else { Duration::ZERO }
}
