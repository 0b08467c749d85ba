use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Weak},
};

/// The connections of each address, for the loop that accepts them.
#[derive(Default)]
pub(super) struct Peers {
    by_address: HashMap<IpAddr, Weak<()>>,
    /// How many may be known before those that have gone are forgotten.
    enough: usize,
}

impl Peers {
    /// Counts one more until what is returned is dropped, unless that were more than `most`.
    pub(super) fn count(&mut self, address: IpAddr, most: usize) -> Option<Arc<()>> {
        if self.by_address.len() > self.enough {
            self.by_address.retain(|_, open| open.strong_count() > 0);
            self.enough = self.by_address.len() * 2;
        }
        let open = self.by_address.entry(address.to_canonical()).or_default();
        if open.strong_count() >= most {
            return None;
        }
        let counted = open.upgrade().unwrap_or_default();
        *open = Arc::downgrade(&counted);
        Some(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_count() {
        let mut peers = Peers::default();
        let mut of = |address: &str| peers.count(address.parse().unwrap(), 2);
        let held = [of("10.0.0.1"), of("::ffff:10.0.0.1")];
        assert!(held.iter().all(Option::is_some));
        assert!(of("10.0.0.1").is_none());
        assert!(of("10.0.0.2").is_some());
        drop(held);
        assert!(of("10.0.0.1").is_some());
    }

    #[test]
    fn who_has_gone_is_forgotten() {
        let mut peers = Peers::default();
        let lasting = peers.count([10, 0, 0, 0].into(), 1);
        for i in 0..=255 {
            assert!(peers.count([10, 0, 1, i].into(), 1).is_some());
        }
        assert!(peers.by_address.len() < 5);
        assert!(peers.count([10, 0, 0, 0].into(), 1).is_none());
        drop(lasting);
    }
}
