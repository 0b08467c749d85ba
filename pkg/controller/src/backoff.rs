//! The rate limiter of the work queue: the delay before a job whose last reconcile failed is
//! reconciled again.
//!
//! `Retry-After` is ignored. See docs/decisions/0016.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use di_cache::Key;
use rand::RngExt;

use crate::Error;

/// Jobs with a failed reconcile, and the delay before the next one.
///
/// kube's `Controller` has no backoff per object (kube-rs/kube#1916).
#[derive(Debug, Default)]
pub(crate) struct Backoff(Mutex<HashMap<Key, JobBackoff>>);

#[derive(Debug)]
struct JobBackoff {
    /// Consecutive failures.
    failures: u32,
    retry_at: Instant,
    /// True after a failure other than a conflict.
    has_failed: bool,
    /// True if the last request timed out.
    unresponsive: bool,
}

/// Maximum delay after the first failure.
pub(crate) const INITIAL_DELAY: Duration = Duration::from_secs(1);
/// Maximum delay after an error that needs the action of a user, such as an exhausted quota.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// Maximum delay while the API server or the connection fails: all jobs continue soon after it
/// has recovered. See docs/decisions/0027.
const MAX_RETRYABLE_DELAY: Duration = Duration::from_secs(10);

impl Backoff {
    /// Counts a failure and returns the delay before the next try: 1 s, doubled up to a maximum.
    /// Jitter shortens it by up to a fifth, so that jobs that failed together do not retry
    /// together.
    pub fn record_failure(&self, job: &Key, error: &Error) -> Duration {
        let now = Instant::now();
        let mut jobs = self.lock_jobs();
        let job = jobs.entry(job.clone()).or_insert(JobBackoff {
            failures: 0,
            retry_at: now,
            has_failed: false,
            unresponsive: false,
        });
        let max_delay = if error.is_retryable() {
            MAX_RETRYABLE_DELAY
        } else {
            MAX_DELAY
        };
        let delay = INITIAL_DELAY.saturating_mul(1 << job.failures.min(16));
        let jitter = rand::rng().random_range(0.8..1.0);
        let delay = delay.min(max_delay).mul_f64(jitter);
        job.failures = job.failures.saturating_add(1);
        // A conflict does not extend the delay of deferred creates.
        if !error.is_conflict() {
            job.retry_at = now + delay;
            job.has_failed = true;
            job.unresponsive = matches!(error, Error::Timeout { .. });
        }
        delay
    }

    /// Returns the rest of the delay. `None` if it is over.
    pub fn remaining_delay(&self, job: &Key) -> Option<Duration> {
        let retry_at = self.lock_jobs().get(job)?.retry_at;
        let remaining = retry_at.saturating_duration_since(Instant::now());
        (!remaining.is_zero()).then_some(remaining)
    }

    /// Returns true if a reconcile of the job failed, and none has succeeded since. A conflict is
    /// no failure.
    pub fn has_failed(&self, job: &Key) -> bool {
        self.lock_jobs().get(job).is_some_and(|job| job.has_failed)
    }

    /// Returns true if the last request of the job timed out, as the next one may.
    ///
    /// The cause may affect only this job, for example a webhook for the pods of its namespace.
    pub fn is_unresponsive(&self, job: &Key) -> bool {
        self.lock_jobs()
            .get(job)
            .is_some_and(|job| job.unresponsive)
    }

    /// Resets the failure count after progress. The current delay stays.
    pub fn reset_failures(&self, job: &Key) {
        if let Some(job) = self.lock_jobs().get_mut(job) {
            job.failures = 0;
        }
    }

    /// Ends the current delay. The failure count stays.
    pub fn clear_delay(&self, job: &Key) {
        if let Some(job) = self.lock_jobs().get_mut(job) {
            job.retry_at = Instant::now();
        }
    }

    /// Removes a job that was reconciled or deleted.
    pub fn forget(&self, job: &Key) {
        self.lock_jobs().remove(job);
    }

    fn lock_jobs(&self) -> MutexGuard<'_, HashMap<Key, JobBackoff>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> Key {
        ("ns".to_owned(), name.to_owned())
    }

    fn name_conflict() -> Error {
        let (kind, name) = ("pod", "p".to_owned());
        Error::NameConflict { kind, name }
    }

    #[test]
    fn job_after_timeout_is_unresponsive_until_success() {
        let backoff = Backoff::default();
        let job = job("j");
        let is_unresponsive_after = |error: Error| {
            backoff.record_failure(&job, &error);
            backoff.is_unresponsive(&job)
        };
        assert!(!backoff.is_unresponsive(&job));
        assert!(!is_unresponsive_after(name_conflict()));
        assert!(is_unresponsive_after(timeout()));
        backoff.reset_failures(&job);
        assert!(backoff.is_unresponsive(&job), "progress of other requests");
        assert!(!is_unresponsive_after(name_conflict()));
        assert!(is_unresponsive_after(timeout()));
        backoff.forget(&job);
        assert!(!backoff.is_unresponsive(&job));
    }

    fn timeout() -> Error {
        let operation = "try".to_owned();
        Error::Timeout {
            operation,
            seconds: 10,
        }
    }

    #[test]
    fn job_has_failed_after_error_other_than_conflict() {
        let backoff = Backoff::default();
        let job = job("j");
        backoff.record_failure(&job, &Error::NoProgress);
        assert!(!backoff.has_failed(&job));
        backoff.record_failure(&job, &name_conflict());
        assert!(backoff.has_failed(&job));
        backoff.record_failure(&job, &Error::NoProgress);
        assert!(backoff.has_failed(&job));
        backoff.forget(&job);
        assert!(!backoff.has_failed(&job));
    }

    #[test]
    fn delay_doubles_to_one_minute_and_success_resets_it() {
        let backoff = Backoff::default();
        let job = job("job");
        let delays: Vec<_> = (0..10)
            .map(|_| backoff.record_failure(&job, &name_conflict()).as_secs_f64())
            .collect();
        for (i, delay) in delays.iter().enumerate() {
            let full = 2_f64.powi(i32::try_from(i).unwrap()).min(60.0);
            assert!((0.8 * full..=full).contains(delay), "{i}: {delay}");
        }
        assert!(backoff.remaining_delay(&job).unwrap() > Duration::from_secs(40));
        backoff.reset_failures(&job);
        assert!(
            backoff.remaining_delay(&job).is_some(),
            "rejected creates stay deferred"
        );
        assert!(backoff.record_failure(&job, &name_conflict()) <= INITIAL_DELAY);
        assert!(backoff.record_failure(&job, &name_conflict()) > INITIAL_DELAY);
        backoff.forget(&job);
        assert_eq!(backoff.remaining_delay(&job), None);
        assert!(backoff.record_failure(&job, &name_conflict()) <= INITIAL_DELAY);
    }

    #[test]
    fn failing_api_server_delays_job_ten_seconds_at_most() {
        let backoff = Backoff::default();
        let job = job("job");
        let delays = (0..10).map(|_| backoff.record_failure(&job, &timeout()));
        assert!(delays.max() <= Some(MAX_RETRYABLE_DELAY));
        assert!(backoff.record_failure(&job, &name_conflict()) > 4 * MAX_RETRYABLE_DELAY);
    }
}
