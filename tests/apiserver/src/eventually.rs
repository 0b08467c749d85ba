use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Far above what anything here takes, so that only a fault reaches it.
const PATIENCE: Duration = Duration::from_secs(180);

/// Looks until `look` returns something, and fails with what it said last when that takes too long.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) => assert!(
                Instant::now() < deadline,
                "not within {PATIENCE:?}: {what}; last seen: {seen}"
            ),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
