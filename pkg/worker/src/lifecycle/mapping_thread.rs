//! A thread that maps the items of one queue to another: computes while the worker thread serves
//! calls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    thread::{Builder, JoinHandle},
    time::Duration,
};

use crate::{Error, Result};

/// Maximum delay until a stop is noticed.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A thread between two queues. It ends when it is stopped, when all upstream senders are dropped,
/// or when the downstream receiver is dropped.
#[derive(Debug)]
pub struct MappingThread {
    name: &'static str,
    stopping: Arc<AtomicBool>,
    /// None after it was joined.
    thread: Option<JoinHandle<()>>,
}

impl MappingThread {
    /// Starts a thread.
    pub fn start<I, O>(
        name: &'static str,
        mut map: impl FnMut(I) -> O + Send + 'static,
        upstream: Receiver<I>,
        downstream: Sender<O>,
    ) -> Result<Self>
    where
        I: Send + 'static,
        O: Send + 'static,
    {
        let stopping = Arc::<AtomicBool>::default();
        let stop = stopping.clone();
        let run = move || {
            while !stop.load(Relaxed) {
                let item = match upstream.recv_timeout(STOP_POLL_INTERVAL) {
                    Ok(item) => item,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                if downstream.send(map(item)).is_err() {
                    return;
                }
            }
        };
        let builder = Builder::new().name(name.to_owned());
        let thread = builder.spawn(run).map_err(Error::Thread)?;
        Ok(Self {
            name,
            stopping,
            thread: Some(thread),
        })
    }

    /// Stops the thread after the current item.
    pub fn stop(&self) {
        self.stopping.store(true, Relaxed);
    }

    /// Waits for the end of the thread.
    ///
    /// # Errors
    /// [`Error::Panicked`] if the mapping panicked.
    pub fn join(&mut self) -> Result<()> {
        let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
        ended.map_err(|_| Error::Panicked(self.name))
    }
}

impl Drop for MappingThread {
    /// Stops the thread.
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{channel, sync_channel};

    use super::*;

    #[test]
    fn items_are_mapped_in_order_until_queue_closes() {
        let (upstream, items) = channel();
        let (downstream, mapped) = channel();
        let mut seen = 0;
        let map = move |item: u32| {
            seen += item;
            seen
        };
        let mut thread = MappingThread::start("sums", map, items, downstream).unwrap();
        for item in 1..=4 {
            upstream.send(item).unwrap();
        }
        drop(upstream);
        thread.join().unwrap();
        thread.join().unwrap();
        assert_eq!(mapped.iter().collect::<Vec<_>>(), [1, 3, 6, 10]);
    }

    #[test]
    fn stopped_thread_finishes_current_item() {
        let (upstream, items) = channel();
        // Rendezvous channels: the thread is in the middle of the first item.
        let (started, has_started) = sync_channel(0);
        let (resume, resumed) = sync_channel::<()>(0);
        let (downstream, mapped) = channel();
        let map = move |item: u32| {
            started.send(item).unwrap();
            resumed.recv().unwrap();
            item
        };
        let mut thread = MappingThread::start("stopped", map, items, downstream).unwrap();
        upstream.send(1).unwrap();
        upstream.send(2).unwrap();
        assert_eq!(has_started.recv(), Ok(1));
        thread.stop();
        resume.send(()).unwrap();
        thread.join().unwrap();
        assert_eq!(mapped.iter().collect::<Vec<_>>(), [1]);
        // An idle thread also notices the stop.
        let (_upstream, items) = channel::<u32>();
        let mut thread = MappingThread::start("idle", |_| (), items, channel().0).unwrap();
        thread.stop();
        thread.join().unwrap();
    }

    #[test]
    fn panic_or_dropped_reader_ends_thread() {
        let (upstream, items) = channel();
        let (downstream, mapped) = channel();
        let map = |item: u32| assert!(item > 0, "none");
        let mut thread = MappingThread::start("panics", map, items, downstream).unwrap();
        upstream.send(0).unwrap();
        assert!(mapped.recv().is_err());
        let error = thread.join().unwrap_err();
        assert_eq!(error.to_string(), "the thread panics panicked");
        let (upstream, items) = channel();
        let (downstream, mapped) = channel();
        drop(mapped);
        let mut thread =
            MappingThread::start("unread", |item: u32| item, items, downstream).unwrap();
        upstream.send(1).unwrap();
        thread.join().unwrap();
    }
}
