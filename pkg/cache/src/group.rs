use std::sync::Arc;

use crate::View;

/// The objects of one job, by name.
#[derive(Debug)]
pub struct Objects<V> {
    sorted: Vec<Arc<V>>,
    revision: u64,
}

impl<V> Default for Objects<V> {
    fn default() -> Self {
        Self {
            sorted: Vec::new(),
            revision: 0,
        }
    }
}

impl<V: View> Objects<V> {
    /// The object of this name.
    pub fn get(&self, name: &str) -> Option<&V> {
        self.shared(name).map(|object| &**object)
    }

    pub(crate) fn shared(&self, name: &str) -> Option<&Arc<V>> {
        let at = self.find(name).ok()?;
        self.sorted.get(at)
    }

    /// All of them, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &V> {
        self.sorted.iter().map(|object| &**object)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// What of them is the same as long as this is: it grows with each change, and is 0 while there are none.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn put(&mut self, object: Arc<V>, revision: u64) -> Option<Arc<V>> {
        self.revision = revision;
        match self.find(object.name()) {
            Ok(at) => Some(std::mem::replace(&mut self.sorted[at], object)),
            Err(at) => {
                self.sorted.insert(at, object);
                None
            }
        }
    }

    pub(crate) fn take(&mut self, name: &str, revision: u64) -> Option<Arc<V>> {
        let at = self.find(name).ok()?;
        self.revision = revision;
        Some(self.sorted.remove(at))
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.sorted
            .binary_search_by(|object| object.name().cmp(name))
    }
}
