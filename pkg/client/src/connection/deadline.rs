use std::{future::pending, time::Duration};

use tokio::time::{Instant, sleep_until};

/// The time until which to wait.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Option<Instant>,
    pub(crate) check_once: bool,
}

impl Deadline {
    /// A deadline after this time. `None` means no deadline, zero means a single check.
    pub fn after(time: Option<Duration>) -> Self {
        Self {
            at: time.and_then(|time| Instant::now().checked_add(time)),
            check_once: time.is_some_and(|time| time.is_zero()),
        }
    }

    pub(crate) async fn wait_passed(self) {
        match self.at {
            Some(at) => sleep_until(at).await,
            None => pending().await,
        }
    }

    /// Whether the deadline is over after a pause of this length.
    pub fn ends_within(self, pause: Duration) -> bool {
        self.at.is_some_and(|at| Instant::now() + pause >= at)
    }
}
