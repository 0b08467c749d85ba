use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use di_cache::Key;
use rand::RngExt;

use crate::Error;

/// Jobs whose last reconcile failed, and how long each waits before the next try.
#[derive(Debug, Default)]
pub(crate) struct Backoff(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    jobs: HashMap<Key, Wait>,
    /// Whether one that waited for the API server has got through since the others were last woken.
    got_through: bool,
}

#[derive(Debug)]
struct Wait {
    /// Failures in a row.
    failures: u32,
    until: Instant,
    /// Whether it waits for the API server, or the way to it, to be well again.
    for_server: bool,
    /// Whether it was not answered in time.
    hangs: bool,
    /// How often it was woken to see whether that is well.
    probes: u32,
    /// Not before is it woken so again: it may be that nothing but what this job asks for is refused.
    next_probe: Instant,
}

/// Longest wait after a first failure.
pub(crate) const FIRST: Duration = Duration::from_secs(1);
/// How often it is looked whether an API server that failed is well again.
pub(crate) const PROBE_EVERY: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(60);

fn doubled(wait: Duration, times: u32) -> Duration {
    wait.saturating_mul(1 << times.min(16)).min(LONGEST)
}

impl Backoff {
    /// Counts a failure and returns how long to wait: 1 s doubling to 60 s, less up to a fifth so that jobs that failed together do not
    /// come back together.
    pub fn failed(&self, job: &Key, error: &Error) -> Duration {
        let now = Instant::now();
        let mut waiting = self.lock();
        let job = waiting.jobs.entry(job.clone()).or_insert(Wait {
            failures: 0,
            until: now,
            for_server: false,
            hangs: false,
            probes: 0,
            next_probe: now,
        });
        let wait = doubled(FIRST, job.failures);
        let wait = wait.mul_f64(rand::rng().random_range(0.8..1.0));
        job.failures = job.failures.saturating_add(1);
        // That somebody else wrote first puts off nothing that waits.
        if !error.is_conflict() {
            job.until = now + wait;
            job.for_server = error.may_pass();
            job.hangs = matches!(error, Error::Timeout { .. });
        }
        wait
    }

    /// How long it has yet to wait.
    pub fn left(&self, job: &Key) -> Option<Duration> {
        let until = self.lock().jobs.get(job)?.until;
        let left = until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Whether its last try was not answered in time, as the next may not be: something that is asked about this job alone may hang, such as a
    /// webhook for the pods of its namespace.
    pub fn hangs(&self, job: &Key) -> bool {
        self.lock().jobs.get(job).is_some_and(|wait| wait.hangs)
    }

    /// Its next failure is again a first one: some of what it is about got through.
    pub fn got_on(&self, job: &Key) {
        if let Some(wait) = self.lock().jobs.get_mut(job) {
            (wait.failures, wait.probes) = (0, 0);
        }
    }

    /// Has it wait no longer, though it failed as often as it did.
    pub fn end_wait(&self, job: &Key) {
        if let Some(wait) = self.lock().jobs.get_mut(job) {
            wait.until = Instant::now();
        }
    }

    /// Forgets a job.
    pub fn forget(&self, job: &Key) {
        self.lock().jobs.remove(job);
    }

    /// Forgets the failures of a job that was reconciled.
    pub fn succeeded(&self, job: &Key) {
        let mut waiting = self.lock();
        let waited = waiting.jobs.remove(job);
        waiting.got_through |= waited.is_some_and(|wait| wait.for_server);
    }

    /// Ends the waits of jobs that wait for the API server: of one, to see whether it is well again, and of all once one has got through. One
    /// that was woken in vain is woken ever later.
    pub fn wake(&self) -> Vec<Key> {
        let now = Instant::now();
        let mut waiting = self.lock();
        let all = std::mem::take(&mut waiting.got_through);
        let jobs = waiting.jobs.iter_mut();
        let mut woken: Vec<_> = jobs
            .filter(|(_, wait)| wait.for_server && wait.until > now)
            .filter(|(_, wait)| all || wait.next_probe <= now)
            .collect();
        // Who has just tried in vain comes last.
        woken.sort_by_key(|(_, wait)| wait.until);
        woken.truncate(if all { usize::MAX } else { 1 });
        let woken = woken.into_iter();
        woken
            .map(|(job, wait)| {
                wait.until = now;
                wait.probes = if all { 0 } else { wait.probes + 1 };
                wait.next_probe = now + doubled(PROBE_EVERY, wait.probes);
                job.clone()
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> Key {
        ("ns".to_owned(), name.to_owned())
    }

    fn refused() -> Error {
        let (kind, name) = ("pod", "p".to_owned());
        Error::Foreign { kind, name }
    }

    #[test]
    fn whoever_was_not_answered_in_time_hangs_until_it_gets_through() {
        let backoff = Backoff::default();
        let job = job("j");
        let failed = |error: Error| {
            backoff.failed(&job, &error);
            backoff.hangs(&job)
        };
        assert!(!backoff.hangs(&job));
        assert!(!failed(refused()));
        assert!(failed(unanswered()));
        backoff.got_on(&job);
        assert!(backoff.hangs(&job), "other calls of it say nothing");
        assert!(!failed(refused()));
        assert!(failed(unanswered()));
        backoff.succeeded(&job);
        assert!(!backoff.hangs(&job));
    }

    fn unanswered() -> Error {
        let what = "try".to_owned();
        Error::Timeout { what, seconds: 10 }
    }

    #[test]
    fn waits_double_up_to_a_minute_and_start_again_after_success() {
        let backoff = Backoff::default();
        let job = job("job");
        let waits: Vec<_> = (0..10)
            .map(|_| backoff.failed(&job, &refused()).as_secs_f64())
            .collect();
        for (i, wait) in waits.iter().enumerate() {
            let full = 2_f64.powi(i32::try_from(i).unwrap()).min(60.0);
            assert!((0.8 * full..=full).contains(wait), "{i}: {wait}");
        }
        assert!(backoff.left(&job).unwrap() > Duration::from_secs(40));
        backoff.got_on(&job);
        assert!(backoff.left(&job).is_some(), "what was refused is put off");
        assert!(backoff.failed(&job, &refused()) <= FIRST);
        assert!(backoff.failed(&job, &refused()) > FIRST);
        backoff.succeeded(&job);
        assert_eq!(backoff.left(&job), None);
        assert!(backoff.failed(&job, &refused()) <= FIRST);
    }

    #[test]
    fn who_waits_for_the_server_is_woken_one_at_a_time_until_one_gets_through() {
        let backoff = Backoff::default();
        let (first, second, third) = (job("first"), job("second"), job("third"));
        backoff.failed(&job("refused"), &refused());
        for job in [&first, &second, &third] {
            backoff.failed(job, &unanswered());
        }
        let mut tried: Vec<_> = (0..3).flat_map(|_| backoff.wake()).collect();
        tried.sort();
        assert_eq!(tried, [first.clone(), second.clone(), third.clone()]);
        assert!(backoff.wake().is_empty(), "all of them try");

        for job in [&first, &second, &third] {
            backoff.failed(job, &unanswered());
        }
        backoff.succeeded(&second);
        let mut woken = backoff.wake();
        woken.sort();
        assert_eq!(woken, [first.clone(), third.clone()]);
        assert_eq!(backoff.left(&first), None);
        assert!(
            backoff.failed(&first, &unanswered()) > 2 * FIRST,
            "it has failed before"
        );
    }

    #[test]
    fn who_was_woken_in_vain_is_not_woken_soon_unless_another_gets_through() {
        let backoff = Backoff::default();
        let (ill, well) = (job("ill"), job("well"));
        backoff.failed(&ill, &unanswered());
        assert_eq!(backoff.wake(), std::slice::from_ref(&ill));
        backoff.failed(&ill, &unanswered());
        assert!(backoff.wake().is_empty());
        backoff.failed(&well, &unanswered());
        assert_eq!(backoff.wake(), std::slice::from_ref(&well), "others are");
        backoff.succeeded(&well);
        assert_eq!(backoff.wake(), [ill]);
    }
}
