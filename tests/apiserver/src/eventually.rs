use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Far above what anything here takes, so that only a fault reaches it.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Looks until `attempt` returns something, and fails with what it said last when that takes too long.
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
