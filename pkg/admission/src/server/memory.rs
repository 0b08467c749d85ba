use std::{sync::Arc, task::Poll};

use axum::body::{Bytes, HttpBody};
use futures::{pending, poll};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::MAX_BODY;
use crate::review::LARGE;

const KIB: usize = 1024;
/// All bodies together: thousands of usual ones, or six of the largest.
const TOTAL: usize = 24 << 20;
/// What is taken of a body at a time: a frame of HTTP/2, or what is read at once of HTTP/1.
const FRAME: usize = 16 << 10;

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
    room: Option<OwnedSemaphorePermit>,
    last: Option<OwnedSemaphorePermit>,
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
            room: None,
            last: None,
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
    /// The next piece of a body. It is taken once there is room for it: those that many bodies hold while they wait would count nowhere. Where
    /// nothing has come there is none to hold: that would be for whoever announces much and sends nothing.
    pub(super) async fn next<B>(&mut self, body: &mut B) -> Option<Result<Bytes, B::Error>>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        loop {
            // What has come whole is judged, which gives its room back.
            if body.is_end_stream() {
                return None;
            }
            self.grow(FRAME).await;
            let polled = poll!(body.frame());
            let polled = polled.map_ok(|frame| frame.into_data().unwrap_or_default());
            let came = match &polled {
                Poll::Ready(Some(Ok(data))) => data.len(),
                _ => 0,
            };
            self.shrink(FRAME.saturating_sub(came));
            self.grow(came.saturating_sub(FRAME)).await;
            if let Poll::Ready(next) = polled {
                return next;
            }
            // The body wakes us.
            pending!();
        }
    }

    /// Waits until there is room for as many bytes more.
    async fn grow(&mut self, bytes: usize) {
        self.bytes += bytes;
        let more = self.bytes.div_ceil(KIB).saturating_sub(self.held());
        if more == 0 || self.last.is_some() {
            return;
        }
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        // Neither is ever closed, so that they cannot fail.
        tokio::select! {
            biased;
            room = self.memory.room.clone().acquire_many_owned(more) => {
                match (&mut self.room, room.ok()) {
                    (Some(held), Some(room)) => held.merge(room),
                    (held, room) => *held = room,
                }
            }
            last = self.memory.last.clone().acquire_owned() => self.last = last.ok(),
        }
    }

    /// Gives back what as many bytes less need no more.
    fn shrink(&mut self, bytes: usize) {
        self.bytes -= bytes;
        let needed = self.bytes.div_ceil(KIB);
        if let Some(more) = self.held().checked_sub(needed) {
            // Another may be the last.
            self.last = None;
            drop(self.room.as_mut().and_then(|room| room.split(more)));
        }
    }

    /// What it has of the room, in KiB.
    fn held(&self) -> usize {
        let room = self.room.as_ref();
        room.map_or(0, OwnedSemaphorePermit::num_permits)
    }
}
