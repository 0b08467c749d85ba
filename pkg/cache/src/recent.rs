use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

/// Number of keys that the set remembers.
const CAPACITY: usize = 4096;

/// A set of the most recently inserted keys. The oldest key is dropped when the set is full.
#[derive(Debug, Default)]
pub(crate) struct RecentSet {
    keys: HashSet<Arc<str>>,
    order: VecDeque<Arc<str>>,
}

impl RecentSet {
    pub(crate) fn insert(&mut self, key: &str) {
        let key: Arc<str> = key.into();
        if !self.keys.insert(key.clone()) {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > CAPACITY
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        self.keys.contains(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_recent_set_drops_oldest_key() {
        let mut recent = RecentSet::default();
        for i in 0..=CAPACITY {
            recent.insert(&i.to_string());
        }
        recent.insert("1");
        assert!(!recent.contains("0"));
        assert!(recent.contains("1") && recent.contains(&CAPACITY.to_string()));
        assert_eq!(recent.keys.len(), recent.order.len());
    }
}
