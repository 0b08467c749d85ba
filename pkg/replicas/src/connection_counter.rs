use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::metrics::gauge::Gauge;

/// Counts the connections of each source address.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounter {
    by_address: Mutex<HashMap<IpAddr, usize>>,
    open: Gauge,
}

/// One of them; it is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    all: Arc<ConnectionCounter>,
    address: IpAddr,
}

impl ConnectionCounter {
    /// Tells `open` how many there are in all.
    pub(crate) fn new(open: Gauge) -> Self {
        Self {
            by_address: Mutex::default(),
            open,
        }
    }

    /// Counts one more, unless that were more than `most`.
    pub(crate) fn count(
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
    fn each_address_has_its_own_count() {
        let all = Arc::<ConnectionCounter>::default();
        let of = |address: &str| all.count(address.parse().unwrap(), 2);
        let held = [of("10.0.0.1"), of("::ffff:10.0.0.1")];
        assert!(held.iter().all(Option::is_some));
        assert!(of("10.0.0.1").is_none());
        let other = of("10.0.0.2").unwrap();
        assert_eq!(all.open.get(), 3);
        drop(held);
        assert!(of("10.0.0.1").is_some());
        drop(other);
        assert_eq!(all.open.get(), 0);
        assert!(all.by_address.lock().unwrap().is_empty());
    }
}
