use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::MAX_BODY;
use crate::review::LARGE;

const KIB: usize = 1024;
/// All bodies together: thousands of usual ones, or six of the largest.
const TOTAL: usize = 24 << 20;

/// What bodies may take of memory at the same time; further ones wait.
#[derive(Clone)]
pub(super) struct Memory {
    /// In KiB.
    room: Arc<Semaphore>,
    /// For one that finds no room, as much as the largest needs: all would wait for each other, a part of each read.
    last: Arc<Semaphore>,
    decoding: Arc<Semaphore>,
}

/// A body's part of it, given back when dropped.
pub(super) struct Reserved {
    memory: Memory,
    bytes: usize,
    held: Vec<OwnedSemaphorePermit>,
    is_last: bool,
}

impl Default for Memory {
    fn default() -> Self {
        let of = |permits| Arc::new(Semaphore::new(permits));
        Self {
            room: of((TOTAL - MAX_BODY) / KIB),
            last: of(1),
            decoding: of(1),
        }
    }
}

impl Memory {
    /// Nothing yet.
    pub(super) fn reserve(&self) -> Reserved {
        Reserved {
            memory: self.clone(),
            bytes: 0,
            held: Vec::new(),
            is_last: false,
        }
    }

    /// Waits for the turn of a body to be decoded, which may take many times its text, for as long as that is kept.
    pub(super) async fn turn(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        if bytes <= LARGE {
            return None;
        }
        // Never closed, so that it cannot fail.
        self.decoding.clone().acquire_owned().await.ok()
    }
}

impl Reserved {
    /// Waits until there is room for as many bytes more.
    pub(super) async fn grow(&mut self, bytes: usize) {
        let before = self.bytes.div_ceil(KIB);
        self.bytes += bytes;
        let more = self.bytes.div_ceil(KIB) - before;
        if more == 0 || self.is_last {
            return;
        }
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        // Neither is ever closed, so that they cannot fail.
        tokio::select! {
            biased;
            room = self.memory.room.clone().acquire_many_owned(more) => self.held.extend(room),
            last = self.memory.last.clone().acquire_owned() => {
                self.held.extend(last);
                self.is_last = true;
            }
        }
    }
}
