use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Much longer than any test step takes, so that only a bug reaches it.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Polls `attempt` until it succeeds; panics with its last error after the timeout.
pub async fn eventually<T>(
    description: &str,
    mut attempt: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match attempt().await {
            Ok(found) => return found,
            Err(seen) => assert!(
                Instant::now() < deadline,
                "not within {TIMEOUT:?}: {description}; last seen: {seen}"
            ),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
