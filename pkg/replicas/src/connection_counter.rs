use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::metrics::gauge::Gauge;

/// Counts open connections per source address.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounter {
    by_address: Mutex<HashMap<IpAddr, usize>>,
    open: Gauge,
}

/// Counts one connection until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    all: Arc<ConnectionCounter>,
    address: IpAddr,
}

impl ConnectionCounter {
    /// Creates a counter that sets `open` to the total.
    pub(crate) fn new(open: Gauge) -> Self {
        Self {
            by_address: Mutex::default(),
            open,
        }
    }

    /// Counts one more connection, unless the address has `most` already.
    pub(crate) fn try_acquire(
        self: &Arc<Self>,
        address: IpAddr,
        most: usize,
    ) -> Option<ConnectionPermit> {
        let address = address.to_canonical();
        let mut all = self
            .by_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        self.open.inc();
        Some(ConnectionPermit {
            all: self.clone(),
            address,
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.all.open.dec();
        let mut all = self
            .all
            .by_address
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_limited_per_address() {
        let all = Arc::<ConnectionCounter>::default();
        let acquire = |address: &str| all.try_acquire(address.parse().unwrap(), 2);
        let permits = [acquire("10.0.0.1"), acquire("::ffff:10.0.0.1")];
        assert!(permits.iter().all(Option::is_some));
        assert!(acquire("10.0.0.1").is_none());
        let other = acquire("10.0.0.2").unwrap();
        assert_eq!(all.open.get(), 3);
        drop(permits);
        assert!(acquire("10.0.0.1").is_some());
        drop(other);
        assert_eq!(all.open.get(), 0);
        assert!(all.by_address.lock().unwrap().is_empty());
    }
}
