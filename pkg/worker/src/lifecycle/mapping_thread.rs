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
    state: State,
}

enum State {
    Ready(Box<dyn FnOnce() + Send>),
    Started(JoinHandle<()>),
    Over,
}

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Ready(_) => "Ready",
            Self::Started(_) => "Started",
            Self::Over => "Over",
        })
    }
}

impl MappingThread {
    /// A thread that is not started. Without a downstream queue, results are dropped.
    pub fn new<I, O>(
        name: &'static str,
        mut map: impl FnMut(I) -> O + Send + 'static,
        upstream: Receiver<I>,
        downstream: Option<Sender<O>>,
    ) -> Self
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
                let mapped = map(item);
                let sent = downstream.as_ref().map(|queue| queue.send(mapped));
                if matches!(sent, Some(Err(_))) {
                    return;
                }
            }
        };
        Self {
            name,
            stopping,
            state: State::Ready(Box::new(run)),
        }
    }

    /// Starts the thread; a second call does nothing.
    pub fn start(&mut self) -> Result<()> {
        self.state = match std::mem::replace(&mut self.state, State::Over) {
            State::Ready(run) => {
                let builder = Builder::new().name(self.name.to_owned());
                State::Started(builder.spawn(run).map_err(Error::Thread)?)
            }
            other => other,
        };
        Ok(())
    }

    /// Whether the thread runs.
    pub fn is_alive(&self) -> bool {
        matches!(&self.state, State::Started(thread) if !thread.is_finished())
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
        match std::mem::replace(&mut self.state, State::Over) {
            State::Started(thread) => thread.join().map_err(|_| Error::Panicked(self.name)),
            other => {
                self.state = other;
                Ok(())
            }
        }
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
        let mut thread = MappingThread::new("sums", map, items, Some(downstream));
        assert!(!thread.is_alive());
        upstream.send(1).unwrap();
        thread.join().unwrap();
        thread.start().unwrap();
        thread.start().unwrap();
        assert!(thread.is_alive());
        for item in 2..=4 {
            upstream.send(item).unwrap();
        }
        drop(upstream);
        thread.join().unwrap();
        assert!(!thread.is_alive());
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
        let mut thread = MappingThread::new("stopped", map, items, Some(downstream));
        thread.start().unwrap();
        upstream.send(1).unwrap();
        upstream.send(2).unwrap();
        assert_eq!(has_started.recv(), Ok(1));
        thread.stop();
        resume.send(()).unwrap();
        thread.join().unwrap();
        assert_eq!(mapped.iter().collect::<Vec<_>>(), [1]);
        // An idle thread also notices the stop.
        let (_upstream, items) = channel::<u32>();
        let mut thread = MappingThread::new("idle", |_| (), items, None);
        thread.start().unwrap();
        thread.stop();
        thread.join().unwrap();
    }

    #[test]
    fn mapping_without_downstream_queue_works() {
        let (upstream, items) = channel();
        let (sink, drain) = channel();
        let mut thread = MappingThread::new(
            "sink",
            move |item: u32| sink.send(item).unwrap(),
            items,
            None,
        );
        thread.start().unwrap();
        upstream.send(5).unwrap();
        assert_eq!(drain.recv(), Ok(5));
        drop(upstream);
        thread.join().unwrap();
    }

    #[test]
    fn panic_or_dropped_reader_ends_thread() {
        let (upstream, items) = channel();
        let (downstream, mapped) = channel();
        let map = |item: u32| assert!(item > 0, "none");
        let mut thread = MappingThread::new("panics", map, items, Some(downstream));
        thread.start().unwrap();
        upstream.send(0).unwrap();
        assert!(mapped.recv().is_err());
        let error = thread.join().unwrap_err();
        assert_eq!(error.to_string(), "the thread panics panicked");
        let (upstream, items) = channel();
        let (downstream, mapped) = channel();
        drop(mapped);
        let mut thread = MappingThread::new("unread", |item: u32| item, items, Some(downstream));
        thread.start().unwrap();
        upstream.send(1).unwrap();
        thread.join().unwrap();
    }
}
