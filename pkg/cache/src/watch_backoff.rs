use std::time::Duration;

use kube::runtime::{utils::Backoff, watcher::DefaultBackoff};

/// The longest delay before a failed watch is opened again.
///
/// kube's own limit is 30 s and more, and jobs would wait as long after an outage of the API
/// server. The watches are few, so shorter delays do not load the server.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// The backoff of kube's watcher, limited to [`MAX_DELAY`].
#[derive(Default)]
pub(crate) struct WatchBackoff(DefaultBackoff);

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|delay| delay.min(MAX_DELAY))
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.0.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_backoff_never_exceeds_max_delay() {
        let delays: Vec<_> = WatchBackoff::default().take(20).collect();
        assert_eq!(delays.len(), 20);
        assert!(delays[0] <= MAX_DELAY, "{delays:?}");
        assert!(delays.iter().all(|delay| *delay <= MAX_DELAY), "{delays:?}");
    }
}
