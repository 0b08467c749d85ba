use std::{collections::HashMap, net::IpAddr, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limits the open connections of each address.
pub(crate) struct AddressLimiter {
    limit: usize,
    by_address: HashMap<IpAddr, Arc<Semaphore>>,
}

impl AddressLimiter {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.min(Semaphore::MAX_PERMITS),
            by_address: HashMap::new(),
        }
    }

    /// Counts a connection until the permit is dropped. Returns `None` if the address has too many.
    pub(crate) fn try_acquire(&mut self, address: IpAddr) -> Option<OwnedSemaphorePermit> {
        // A permit keeps a reference to its semaphore: forget addresses without connections.
        self.by_address
            .retain(|_, open| Arc::strong_count(open) > 1);
        let open = self
            .by_address
            .entry(address.to_canonical())
            .or_insert_with(|| Arc::new(Semaphore::new(self.limit)));
        open.clone().try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_limited_per_address() {
        let mut limiter = AddressLimiter::new(2);
        let mut acquire = |address: &str| limiter.try_acquire(address.parse().unwrap());
        let open = [acquire("10.0.0.1"), acquire("::ffff:10.0.0.1")];
        assert!(open.iter().all(Option::is_some));
        assert!(acquire("10.0.0.1").is_none());
        assert!(acquire("10.0.0.2").is_some());
        drop(open);
        assert!(acquire("10.0.0.1").is_some());
    }

    #[test]
    fn addresses_without_connections_are_removed() {
        let mut limiter = AddressLimiter::new(1);
        let open = limiter.try_acquire([10, 0, 0, 0].into());
        for i in 0..=255 {
            assert!(limiter.try_acquire([10, 0, 1, i].into()).is_some());
        }
        assert!(limiter.by_address.len() <= 2);
        assert!(limiter.try_acquire([10, 0, 0, 0].into()).is_none());
        drop(open);
    }
}
