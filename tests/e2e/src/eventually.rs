use std::{fmt::Debug, future::Future, time::Duration};

use tokio::time::{Instant, sleep};

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Far above what anything here takes, so that only a fault reaches it.
const PATIENCE: Duration = Duration::from_secs(300);

/// Looks until `look` returns something that `done` accepts.
///
/// # Panics
/// When that takes too long, with what was seen last.
pub async fn eventually<T: Debug, F: Future<Output = T>>(
    what: &str,
    look: impl FnMut() -> F,
    done: impl Fn(&T) -> bool,
) -> T {
    within(PATIENCE, what, look, done).await
}

/// As [`eventually`], with a deadline of its own.
///
/// # Panics
/// When that takes too long, with what was seen last.
pub async fn within<T: Debug, F: Future<Output = T>>(
    patience: Duration,
    what: &str,
    mut look: impl FnMut() -> F,
    done: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + patience;
    loop {
        let seen = look().await;
        if done(&seen) {
            return seen;
        }
        assert!(
            Instant::now() < deadline,
            "not {what} within {patience:?}; last seen: {seen:#?}"
        );
        sleep(LOOK_EVERY).await;
    }
}
