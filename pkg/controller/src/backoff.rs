//! Backoff of jobs whose last reconcile failed, and the circuit breaker for failures of the whole API server.
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
pub(crate) struct Backoff(Mutex<BackoffState>);

#[derive(Debug, Default)]
struct BackoffState {
    jobs: HashMap<Key, JobBackoff>,
    /// True if a job that waited for the API server succeeded since the last probe.
    api_server_recovered: bool,
}

#[derive(Debug)]
struct JobBackoff {
    /// Consecutive failures.
    failures: u32,
    retry_at: Instant,
    /// True if the API server, or the connection to it, failed.
    waits_for_api_server: bool,
    /// True if the last request timed out.
    unresponsive: bool,
    /// Consecutive probes that failed.
    probes: u32,
    /// Earliest time of the next probe. The delay grows, as perhaps only the requests of this
    /// job fail.
    next_probe: Instant,
}

/// Maximum delay after the first failure.
pub(crate) const INITIAL_DELAY: Duration = Duration::from_secs(1);
/// Interval of probes of a failing API server.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(2);
const MAX_DELAY: Duration = Duration::from_secs(60);

fn exponential_delay(initial: Duration, doublings: u32) -> Duration {
    initial
        .saturating_mul(1 << doublings.min(16))
        .min(MAX_DELAY)
}

impl Backoff {
    /// Counts a failure and returns the delay before the next try: 1 s, doubled up to 60 s.
    /// Jitter shortens it by up to a fifth, so that jobs that failed together do not retry
    /// together.
    pub fn record_failure(&self, job: &Key, error: &Error) -> Duration {
        let now = Instant::now();
        let mut state = self.lock_state();
        let job = state.jobs.entry(job.clone()).or_insert(JobBackoff {
            failures: 0,
            retry_at: now,
            waits_for_api_server: false,
            unresponsive: false,
            probes: 0,
            next_probe: now,
        });
        let delay = exponential_delay(INITIAL_DELAY, job.failures);
        let delay = delay.mul_f64(rand::rng().random_range(0.8..1.0));
        job.failures = job.failures.saturating_add(1);
        // A conflict does not extend the delay of deferred creates.
        if !error.is_conflict() {
            job.retry_at = now + delay;
            job.waits_for_api_server = error.is_retryable();
            job.unresponsive = matches!(error, Error::Timeout { .. });
        }
        delay
    }

    /// Returns the rest of the delay. `None` if it is over.
    pub fn remaining_delay(&self, job: &Key) -> Option<Duration> {
        let retry_at = self.lock_state().jobs.get(job)?.retry_at;
        let remaining = retry_at.saturating_duration_since(Instant::now());
        (!remaining.is_zero()).then_some(remaining)
    }

    /// Returns true if the last request of the job timed out, as the next one may.
    ///
    /// The cause may affect only this job, for example a webhook for the pods of its namespace.
    pub fn is_unresponsive(&self, job: &Key) -> bool {
        let state = self.lock_state();
        state.jobs.get(job).is_some_and(|job| job.unresponsive)
    }

    /// Resets the failure count after progress. The current delay stays.
    pub fn reset_failures(&self, job: &Key) {
        if let Some(job) = self.lock_state().jobs.get_mut(job) {
            (job.failures, job.probes) = (0, 0);
        }
    }

    /// Ends the current delay. The failure count stays.
    pub fn clear_delay(&self, job: &Key) {
        if let Some(job) = self.lock_state().jobs.get_mut(job) {
            job.retry_at = Instant::now();
        }
    }

    /// Removes a deleted job.
    pub fn forget(&self, job: &Key) {
        self.lock_state().jobs.remove(job);
    }

    /// Removes the failures of a job that was reconciled. Closes the circuit breaker if it waited
    /// for the API server.
    pub fn record_success(&self, job: &Key) {
        let mut state = self.lock_state();
        let removed = state.jobs.remove(job);
        state.api_server_recovered |= removed.is_some_and(|job| job.waits_for_api_server);
    }

    /// Half-opens the circuit breaker: ends the delay of one job that waits for the API server, or
    /// of all once one has succeeded. Returns the jobs to reconcile.
    ///
    /// Each failed probe doubles the interval of the next probe by the same job.
    pub fn half_open(&self) -> Vec<Key> {
        let now = Instant::now();
        let mut state = self.lock_state();
        let recovered = std::mem::take(&mut state.api_server_recovered);
        let jobs = state.jobs.iter_mut();
        let mut probing: Vec<_> = jobs
            .filter(|(_, job)| job.waits_for_api_server && job.retry_at > now)
            .filter(|(_, job)| recovered || job.next_probe <= now)
            .collect();
        // The job that failed most recently comes last.
        probing.sort_by_key(|(_, job)| job.retry_at);
        probing.truncate(if recovered { usize::MAX } else { 1 });
        let probing = probing.into_iter();
        probing
            .map(|(key, job)| {
                job.retry_at = now;
                job.probes = if recovered { 0 } else { job.probes + 1 };
                job.next_probe = now + exponential_delay(PROBE_INTERVAL, job.probes);
                key.clone()
            })
            .collect()
    }

    fn lock_state(&self) -> MutexGuard<'_, BackoffState> {
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
        backoff.record_success(&job);
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
        backoff.record_success(&job);
        assert_eq!(backoff.remaining_delay(&job), None);
        assert!(backoff.record_failure(&job, &name_conflict()) <= INITIAL_DELAY);
    }

    #[test]
    fn circuit_breaker_probes_one_job_until_one_succeeds() {
        let backoff = Backoff::default();
        let (first, second, third) = (job("first"), job("second"), job("third"));
        backoff.record_failure(&job("rejected"), &name_conflict());
        for job in [&first, &second, &third] {
            backoff.record_failure(job, &timeout());
        }
        let mut probing: Vec<_> = (0..3).flat_map(|_| backoff.half_open()).collect();
        probing.sort();
        assert_eq!(probing, [first.clone(), second.clone(), third.clone()]);
        assert!(backoff.half_open().is_empty(), "all jobs probe already");

        for job in [&first, &second, &third] {
            backoff.record_failure(job, &timeout());
        }
        backoff.record_success(&second);
        let mut retried = backoff.half_open();
        retried.sort();
        assert_eq!(retried, [first.clone(), third.clone()]);
        assert_eq!(backoff.remaining_delay(&first), None);
        assert!(
            backoff.record_failure(&first, &timeout()) > 2 * INITIAL_DELAY,
            "it has failed before"
        );
    }

    #[test]
    fn failed_probe_delays_next_one_until_another_succeeds() {
        let backoff = Backoff::default();
        let (failing, healthy) = (job("failing"), job("healthy"));
        backoff.record_failure(&failing, &timeout());
        assert_eq!(backoff.half_open(), std::slice::from_ref(&failing));
        backoff.record_failure(&failing, &timeout());
        assert!(backoff.half_open().is_empty());
        backoff.record_failure(&healthy, &timeout());
        assert_eq!(
            backoff.half_open(),
            std::slice::from_ref(&healthy),
            "other jobs still probe"
        );
        backoff.record_success(&healthy);
        assert_eq!(backoff.half_open(), [failing]);
    }
}
