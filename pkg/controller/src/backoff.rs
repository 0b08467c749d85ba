use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use di_cache::Key;
use rand::RngExt;

/// Failures in a row by job, from which follows how long to wait before the next try.
#[derive(Debug, Default)]
pub(crate) struct Backoff(Mutex<HashMap<Key, u32>>);

/// Longest wait after a first failure.
pub(crate) const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

impl Backoff {
    /// Counts a failure and returns how long to wait: 1 s doubling to 60 s, less up to a fifth so that jobs that failed together do not
    /// come back together.
    pub fn failed(&self, job: &Key) -> Duration {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(job.clone()).or_default();
        let wait = FIRST.saturating_mul(1 << (*count).min(16)).min(LONGEST);
        *count = count.saturating_add(1);
        wait.mul_f64(rand::rng().random_range(0.8..1.0))
    }

    /// Forgets the failures of a job.
    pub fn reset(&self, job: &Key) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_start_again_after_success() {
        let backoff = Backoff::default();
        let job = ("ns".to_owned(), "job".to_owned());
        let waits: Vec<_> = (0..10)
            .map(|_| backoff.failed(&job).as_secs_f64())
            .collect();
        for (i, wait) in waits.iter().enumerate() {
            let full = 2_f64.powi(i32::try_from(i).unwrap()).min(60.0);
            assert!((0.8 * full..=full).contains(wait), "{i}: {wait}");
        }
        backoff.reset(&job);
        assert!(backoff.failed(&job) <= FIRST);
    }
}
