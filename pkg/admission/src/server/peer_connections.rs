use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Weak},
};

/// Counts the open connections of each address.
#[derive(Default)]
pub(super) struct PeerConnections {
    by_address: HashMap<IpAddr, Weak<()>>,
    /// Number of addresses above which addresses without connections are removed.
    prune_above: usize,
}

impl PeerConnections {
    /// Counts a connection until the returned guard is dropped. Returns `None` if the address
    /// already has `max` connections.
    pub(super) fn add_connection(&mut self, address: IpAddr, max: usize) -> Option<Arc<()>> {
        if self.by_address.len() > self.prune_above {
            self.by_address.retain(|_, open| open.strong_count() > 0);
            self.prune_above = self.by_address.len() * 2;
        }
        let open = self.by_address.entry(address.to_canonical()).or_default();
        if open.strong_count() >= max {
            return None;
        }
        let guard = open.upgrade().unwrap_or_default();
        *open = Arc::downgrade(&guard);
        Some(guard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_per_address() {
        let mut peers = PeerConnections::default();
        let mut add = |address: &str| peers.add_connection(address.parse().unwrap(), 2);
        let open = [add("10.0.0.1"), add("::ffff:10.0.0.1")];
        assert!(open.iter().all(Option::is_some));
        assert!(add("10.0.0.1").is_none());
        assert!(add("10.0.0.2").is_some());
        drop(open);
        assert!(add("10.0.0.1").is_some());
    }

    #[test]
    fn addresses_without_connections_are_removed() {
        let mut peers = PeerConnections::default();
        let open = peers.add_connection([10, 0, 0, 0].into(), 1);
        for i in 0..=255 {
            assert!(peers.add_connection([10, 0, 1, i].into(), 1).is_some());
        }
        assert!(peers.by_address.len() < 5);
        assert!(peers.add_connection([10, 0, 0, 0].into(), 1).is_none());
        drop(open);
    }
}
