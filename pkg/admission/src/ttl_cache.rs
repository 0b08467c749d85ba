use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Maximum number of entries. A cluster has fewer users that submit jobs within some seconds.
const MAX_ENTRIES: usize = 1024;
/// Larger entries are not cached, so that the cache needs at most 4 MiB.
const MAX_ENTRY_BYTES: usize = 4096;

/// A map whose entries expire after a fixed time.
pub(crate) struct TtlCache<K, V> {
    ttl: Duration,
    entries: Mutex<HashMap<K, (Instant, V)>>,
}

impl<K: Eq + Hash, V: Clone> TtlCache<K, V> {
    /// An empty cache. A `ttl` of zero disables it.
    pub(crate) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            entries: Mutex::default(),
        }
    }

    /// The value of this key, unless it has expired.
    pub(crate) fn get_valid(&self, key: &K) -> Option<V> {
        let entries = self.lock_entries();
        let (expiry, value) = entries.get(key)?;
        (Instant::now() < *expiry).then(|| value.clone())
    }

    /// Inserts an entry of `size` bytes that was valid at `time`.
    pub(crate) fn insert_at(&self, key: K, value: V, size: usize, time: Instant) {
        if self.ttl.is_zero() || size > MAX_ENTRY_BYTES {
            return;
        }
        let mut entries = self.lock_entries();
        if entries.len() >= MAX_ENTRIES {
            let now = Instant::now();
            entries.retain(|_, (expiry, _)| now < *expiry);
        }
        // The caller queries an entry again that does not fit.
        if entries.len() < MAX_ENTRIES {
            entries.insert(key, (time + self.ttl, value));
        }
    }

    /// A panic under the lock cannot leave a partial change in a map.
    fn lock_entries(&self) -> MutexGuard<'_, HashMap<K, (Instant, V)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn entry_expires_ttl_after_its_time() {
        let cache = TtlCache::new(TTL);
        let queried_at = Instant::now();
        tokio::time::advance(TTL / 2).await;
        cache.insert_at("ann", 1, 3, queried_at);
        assert_eq!(
            (cache.get_valid(&"ann"), cache.get_valid(&"bob")),
            (Some(1), None)
        );
        tokio::time::advance(TTL / 2).await;
        assert_eq!(cache.get_valid(&"ann"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn cache_limits_number_and_size_of_entries() {
        let cache = TtlCache::new(TTL);
        for i in 0..=MAX_ENTRIES {
            cache.insert_at(i, (), 8, Instant::now());
        }
        assert_eq!(cache.lock_entries().len(), MAX_ENTRIES);
        assert!(cache.get_valid(&0).is_some() && cache.get_valid(&MAX_ENTRIES).is_none());
        tokio::time::advance(TTL).await;
        cache.insert_at(MAX_ENTRIES, (), 8, Instant::now());
        cache.insert_at(0, (), MAX_ENTRY_BYTES + 1, Instant::now());
        assert_eq!(cache.lock_entries().len(), 1, "expired entries are dropped");
        let disabled = TtlCache::new(Duration::ZERO);
        disabled.insert_at(0, (), 8, Instant::now());
        assert!(disabled.get_valid(&0).is_none());
    }
}
