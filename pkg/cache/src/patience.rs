use std::time::Duration;

use kube::runtime::{utils::Backoff, watcher::DefaultBackoff};

/// The longest wait of a watch that failed. kube's own is 30 s and more, for which jobs would go on waiting once an API server that was away
/// is back; the watches are few, so that trying sooner costs it nothing.
const LONGEST: Duration = Duration::from_secs(2);

/// How long watches wait that failed: as kube's, but never long.
#[derive(Default)]
pub(crate) struct Patience(DefaultBackoff);

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|wait| wait.min(LONGEST))
    }
}

impl Backoff for Patience {
    fn reset(&mut self) {
        self.0.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wait_is_long() {
        let waits: Vec<_> = Patience::default().take(20).collect();
        assert_eq!(waits.len(), 20);
        assert!(waits[0] <= LONGEST, "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= LONGEST), "{waits:?}");
    }
}
