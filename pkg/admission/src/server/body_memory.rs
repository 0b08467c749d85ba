use std::{sync::Arc, task::Poll};

use axum::body::{Bytes, HttpBody};
use futures::{pending, poll};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::review::LARGE_BODY_BYTES;

const KIB: usize = 1024;
/// Maximum size of a body: the new and the old object of 1.5 MiB each, the limit of etcd.
pub(super) const MAX_BODY_BYTES: usize = 4 << 20;
/// Memory for all bodies: thousands of usual bodies, or six of the maximum size.
const TOTAL_BYTES: usize = 24 << 20;
/// Memory that is reserved before each read: an HTTP/2 frame, or one read of HTTP/1.
const FRAME_BYTES: usize = 16 << 10;

/// Limits the memory of all request bodies. A body that does not fit waits.
#[derive(Clone)]
pub(super) struct BodyMemory {
    /// Free memory in KiB.
    free_kib: Arc<Semaphore>,
    /// One reserve of the maximum body size, for one waiting body at a time. Without it, partly
    /// read bodies could wait for each other and block all.
    overflow: Arc<Semaphore>,
    decode_permits: Arc<Semaphore>,
}

/// The memory of one body. It is released when dropped.
pub(super) struct MemoryReservation {
    memory: BodyMemory,
    /// Number of bytes that were received.
    received: usize,
    permit: Option<OwnedSemaphorePermit>,
    overflow_permit: Option<OwnedSemaphorePermit>,
}

impl Default for BodyMemory {
    fn default() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self {
            free_kib: semaphore((TOTAL_BYTES - MAX_BODY_BYTES) / KIB),
            overflow: semaphore(1),
            decode_permits: semaphore(1),
        }
    }
}

impl BodyMemory {
    /// An empty reservation for a new body.
    pub(super) fn new_reservation(&self) -> MemoryReservation {
        MemoryReservation {
            memory: self.clone(),
            received: 0,
            permit: None,
            overflow_permit: None,
        }
    }

    /// Waits for the permit to decode a large body: decoded, it can need many times its size. Small
    /// bodies need no permit.
    pub(super) async fn decode_permit(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        if bytes <= LARGE_BODY_BYTES {
            return None;
        }
        // The semaphore is never closed, so this cannot fail.
        self.decode_permits.clone().acquire_owned().await.ok()
    }
}

impl MemoryReservation {
    /// Reads the next frame of a body, after memory for it is reserved.
    ///
    /// Without the reservation, the frames of waiting bodies would not be counted. While no data
    /// arrives, nothing stays reserved: a client cannot block memory by announcing a large body.
    pub(super) async fn next_frame<B>(&mut self, body: &mut B) -> Option<Result<Bytes, B::Error>>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        loop {
            // A complete body must not wait for more memory: handling it releases its memory.
            if body.is_end_stream() {
                return None;
            }
            self.resize(self.received + FRAME_BYTES).await;
            let polled = poll!(body.frame());
            let polled = polled.map_ok(|frame| frame.into_data().unwrap_or_default());
            if let Poll::Ready(Some(Ok(data))) = &polled {
                self.received += data.len();
            }
            self.resize(self.received).await;
            if let Poll::Ready(next) = polled {
                return next;
            }
            // `poll!` has registered the waker of this task with the body.
            pending!();
        }
    }

    /// Changes the reservation to this size. Waits for memory if it grows.
    async fn resize(&mut self, bytes: usize) {
        let kib = bytes.div_ceil(KIB);
        let permit = self.permit.as_ref();
        let reserved = permit.map_or(0, OwnedSemaphorePermit::num_permits);
        if kib <= reserved {
            // The body fits again: another one can use the overflow.
            self.overflow_permit = None;
            let permit = self.permit.as_mut();
            drop(permit.and_then(|permit| permit.split(reserved - kib)));
        } else if self.overflow_permit.is_none() {
            let missing = u32::try_from(kib - reserved).unwrap_or(u32::MAX);
            // The semaphores are never closed, so this cannot fail.
            tokio::select! {
                biased;
                acquired = self.memory.free_kib.clone().acquire_many_owned(missing) => {
                    match (&mut self.permit, acquired.ok()) {
                        (Some(permit), Some(acquired)) => permit.merge(acquired),
                        (permit, acquired) => *permit = acquired,
                    }
                }
                acquired = self.memory.overflow.clone().acquire_owned() => {
                    self.overflow_permit = acquired.ok();
                }
            }
        }
    }
}
