use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const KIB: usize = 1024;
/// All bodies together, in KiB: thousands of usual ones, or six of the largest.
const TOTAL: usize = 24 * KIB;

/// What bodies may take of memory at the same time; further ones wait.
#[derive(Clone)]
pub(super) struct Memory(Arc<Semaphore>);

/// A body's part of it, given back when dropped.
pub(super) struct Reserved {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Default for Memory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(TOTAL)))
    }
}

impl Memory {
    /// Waits until there is room for as many bytes.
    pub(super) async fn reserve(&self, bytes: usize) -> Reserved {
        let kib = bytes.div_ceil(KIB).min(TOTAL);
        let permits = u32::try_from(kib).unwrap_or(u32::MAX);
        Reserved {
            // Never closed, so that it cannot fail.
            _permit: self.0.clone().acquire_many_owned(permits).await.ok(),
        }
    }
}
