use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Whether a watch works, as far as its errors tell: one that is quiet works.
#[derive(Debug, Default)]
pub struct WatchHealth(Mutex<Option<Failing>>);

#[derive(Clone, Copy, Debug)]
struct Failing {
    since: Instant,
    last: Instant,
}

/// A watch that fails tries again at least this often, and then tells of it.
const TRIES_EVERY: Duration = Duration::from_secs(60);

impl WatchHealth {
    /// Notes that the watch brought something.
    pub fn worked(&self) {
        self.set(None);
    }

    /// Notes that it failed.
    pub fn failed(&self) {
        self.failed_at(Instant::now());
    }

    /// For how long it has done nothing but fail.
    pub fn failing_for(&self) -> Duration {
        self.failing_at(Instant::now())
    }

    fn failed_at(&self, now: Instant) {
        let since = match self.get() {
            Some(failing) if now - failing.last < TRIES_EVERY => failing.since,
            _ => now,
        };
        self.set(Some(Failing { since, last: now }));
    }

    fn failing_at(&self, now: Instant) -> Duration {
        self.get()
            .filter(|failing| now - failing.last < TRIES_EVERY)
            .map_or(Duration::ZERO, |failing| now - failing.since)
    }

    fn get(&self) -> Option<Failing> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, failing: Option<Failing>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = failing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_does_nothing_but_fail_is_told_from_one_that_is_quiet() {
        let health = WatchHealth::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(health.failing_at(at(500)), Duration::ZERO);
        health.failed_at(at(0));
        health.failed_at(at(30));
        assert_eq!(health.failing_at(at(40)), Duration::from_secs(40));
        // It was quiet since: it tries more often than that.
        assert_eq!(health.failing_at(at(91)), Duration::ZERO);
        health.failed_at(at(200));
        assert_eq!(health.failing_at(at(210)), Duration::from_secs(10));
        health.worked();
        assert_eq!(health.failing_at(at(211)), Duration::ZERO);
    }
}
