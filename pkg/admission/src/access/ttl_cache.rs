use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Maximum number of keys. A cluster has fewer users that submit jobs within some seconds.
const MAX_ENTRIES: usize = 1024;
/// Keys above this size are not cached, so that the cache needs at most 4 MiB.
const MAX_KEY_BYTES: usize = 4096;

/// A set of keys that expire after a fixed time.
pub(super) struct TtlCache<T> {
    ttl: Duration,
    expiries: Mutex<HashMap<T, Instant>>,
}

impl<T: Clone + Eq + Hash> TtlCache<T> {
    /// An empty cache. A `ttl` of zero disables it.
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            expiries: Mutex::default(),
        }
    }

    /// Whether the cache has this key and it has not expired.
    pub(super) fn contains_valid(&self, key: &T) -> bool {
        let expiries = self.lock_expiries();
        let expiry = expiries.get(key);
        expiry.is_some_and(|expiry| Instant::now() < *expiry)
    }

    /// Inserts a key of `size` bytes that was valid at `time`.
    pub(super) fn insert_at(&self, key: &T, size: usize, time: Instant) {
        if self.ttl.is_zero() || size > MAX_KEY_BYTES {
            return;
        }
        let mut expiries = self.lock_expiries();
        if expiries.len() >= MAX_ENTRIES {
            let now = Instant::now();
            expiries.retain(|_, expiry| now < *expiry);
        }
        // A key that does not fit is queried again by the caller.
        if expiries.len() < MAX_ENTRIES {
            expiries.insert(key.clone(), time + self.ttl);
        }
    }

    /// A panic under the lock cannot leave a partial change in a map.
    fn lock_expiries(&self) -> MutexGuard<'_, HashMap<T, Instant>> {
        self.expiries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn key_expires_ttl_after_its_time() {
        let cache = TtlCache::new(TTL);
        let queried_at = Instant::now();
        tokio::time::advance(TTL / 2).await;
        cache.insert_at(&"ann", 3, queried_at);
        assert!(cache.contains_valid(&"ann") && !cache.contains_valid(&"bob"));
        tokio::time::advance(TTL / 2).await;
        assert!(!cache.contains_valid(&"ann"));
    }

    #[tokio::test(start_paused = true)]
    async fn cache_limits_number_and_size_of_keys() {
        let cache = TtlCache::new(TTL);
        for i in 0..=MAX_ENTRIES {
            cache.insert_at(&i, 8, Instant::now());
        }
        assert_eq!(cache.lock_expiries().len(), MAX_ENTRIES);
        assert!(cache.contains_valid(&0) && !cache.contains_valid(&MAX_ENTRIES));
        tokio::time::advance(TTL).await;
        cache.insert_at(&MAX_ENTRIES, 8, Instant::now());
        cache.insert_at(&0, MAX_KEY_BYTES + 1, Instant::now());
        assert_eq!(cache.lock_expiries().len(), 1, "expired keys are dropped");
        let disabled = TtlCache::new(Duration::ZERO);
        disabled.insert_at(&0, 8, Instant::now());
        assert!(!disabled.contains_valid(&0));
    }
}
