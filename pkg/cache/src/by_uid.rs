use std::{
    borrow::Borrow,
    hash::{Hash, Hasher},
    sync::Arc,
};

use crate::view::View;

/// An object that is compared and hashed by its UID.
///
/// A set of these is an index by UID that needs one pointer per object.
#[derive(Debug)]
pub(crate) struct ByUid<V>(pub Arc<V>);

impl<V: View> Borrow<str> for ByUid<V> {
    fn borrow(&self) -> &str {
        self.0.uid()
    }
}

impl<V: View> Hash for ByUid<V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.uid().hash(state);
    }
}

impl<V: View> PartialEq for ByUid<V> {
    fn eq(&self, other: &Self) -> bool {
        self.0.uid() == other.0.uid()
    }
}

impl<V: View> Eq for ByUid<V> {}
