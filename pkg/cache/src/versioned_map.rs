use std::sync::Arc;

use crate::view::View;

/// The objects of one job by name, with a revision that grows with each change.
#[derive(Debug)]
pub struct VersionedMap<V> {
    sorted: Vec<Arc<V>>,
    revision: u64,
}

impl<V> Default for VersionedMap<V> {
    fn default() -> Self {
        Self {
            sorted: Vec::new(),
            revision: 0,
        }
    }
}

impl<V: View> VersionedMap<V> {
    /// The object of this name.
    pub fn get(&self, name: &str) -> Option<&V> {
        self.get_shared(name).map(|object| &**object)
    }

    pub(crate) fn get_shared(&self, name: &str) -> Option<&Arc<V>> {
        let index = self.find_index(name).ok()?;
        self.sorted.get(index)
    }

    /// All objects, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &V> {
        self.sorted.iter().map(|object| &**object)
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether the map has no objects.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The revision of the last change; 0 while the job has no objects.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn insert_object(&mut self, object: Arc<V>, revision: u64) -> Option<Arc<V>> {
        self.revision = revision;
        match self.find_index(object.name()) {
            Ok(index) => Some(std::mem::replace(&mut self.sorted[index], object)),
            Err(index) => {
                self.sorted.insert(index, object);
                None
            }
        }
    }

    pub(crate) fn remove_object(&mut self, name: &str, revision: u64) -> Option<Arc<V>> {
        let index = self.find_index(name).ok()?;
        self.revision = revision;
        Some(self.sorted.remove(index))
    }

    fn find_index(&self, name: &str) -> Result<usize, usize> {
        self.sorted
            .binary_search_by(|object| object.name().cmp(name))
    }
}
