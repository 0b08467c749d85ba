use std::{fmt::Debug, future::Future, time::Duration};

use tokio::time::{Instant, sleep};

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Much longer than any test step takes, so that only a bug reaches it.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Polls `attempt` until `done` accepts its result.
///
/// # Panics
/// After the timeout, with the last result.
pub async fn eventually<T: Debug, F: Future<Output = T>>(
    description: &str,
    attempt: impl FnMut() -> F,
    done: impl Fn(&T) -> bool,
) -> T {
    eventually_within(TIMEOUT, description, attempt, done).await
}

/// The same as [`eventually`] with another timeout.
///
/// # Panics
/// After the timeout, with the last result.
pub async fn eventually_within<T: Debug, F: Future<Output = T>>(
    timeout: Duration,
    description: &str,
    mut attempt: impl FnMut() -> F,
    done: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + timeout;
    loop {
        let seen = attempt().await;
        if done(&seen) {
            return seen;
        }
        assert!(
            Instant::now() < deadline,
            "not {description} within {timeout:?}; last seen: {seen:#?}"
        );
        sleep(POLL_INTERVAL).await;
    }
}
