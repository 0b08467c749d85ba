//! Queue of Kubernetes events. They are published in the background, as no reconcile depends on
//! them.

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
    sync::atomic::{AtomicUsize, Ordering},
};

use futures::future::join_all;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::Event;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

/// Number of shards, and so of events that are published at the same time.
const SHARDS: usize = 4;
/// Capacity of each shard; more events are dropped and logged. client-go's broadcaster keeps 1000
/// in total.
const SHARD_CAPACITY: usize = 1024;

/// An event, and the object it is about.
pub(crate) struct QueuedEvent {
    pub event: Event,
    pub regarding: ObjectReference,
    /// True if repetitions are merged into one event with a count.
    pub aggregated: bool,
}

pub(crate) enum QueueItem {
    Event(Box<QueuedEvent>),
    /// Acknowledged once all earlier events of the shard are published.
    Flush(oneshot::Sender<()>),
}

/// Sending side of the queue. Events about one object stay in order.
pub(crate) struct EventQueue {
    shards: Vec<mpsc::Sender<QueueItem>>,
    /// Dropped events that are not logged yet.
    dropped: AtomicUsize,
}

impl EventQueue {
    /// Creates the queue. Each receiver publishes the events of one shard.
    pub fn new() -> (Self, Vec<mpsc::Receiver<QueueItem>>) {
        let (shards, receivers) = (0..SHARDS).map(|_| mpsc::channel(SHARD_CAPACITY)).unzip();
        let dropped = AtomicUsize::default();
        (Self { shards, dropped }, receivers)
    }

    /// Adds an event without waiting. It drops the event if the shard is full.
    pub fn enqueue(&self, event: QueuedEvent) {
        let hash = hash_of(&event.regarding.uid);
        let shard = usize::try_from(hash % SHARDS as u64).unwrap_or_default();
        let sent = self.shards[shard].try_send(QueueItem::Event(Box::new(event)));
        if sent.is_err() && self.dropped.fetch_add(1, Ordering::Relaxed) + 1 >= SHARD_CAPACITY {
            self.log_dropped();
        }
    }

    /// Logs the number of dropped events. Events are dropped in bursts, so one line reports many.
    pub fn log_dropped(&self) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            warn!(dropped, "Dropped events: the event queue is full");
        }
    }

    /// Waits until all queued events are published or dropped.
    pub async fn flush(&self) {
        let flushes = self.shards.iter().map(async |shard| {
            let (done, flushed) = oneshot::channel();
            if shard.send(QueueItem::Flush(done)).await.is_ok() {
                flushed.await.ok();
            }
        });
        join_all(flushes).await;
    }
}

/// Returns a hash that is stable within this process.
pub(crate) fn hash_of(value: impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use di_fixtures::{ApiServerMock, Reply};
    use futures::FutureExt;
    use kube::runtime::events::EventType;
    use serde_json::json;

    use super::*;
    use crate::{context::Context, events::publish_shard};

    fn event(uid: usize, reason: &str) -> QueuedEvent {
        QueuedEvent {
            event: Event {
                type_: EventType::Normal,
                reason: reason.to_owned(),
                note: None,
                action: String::new(),
                secondary: None,
            },
            regarding: ObjectReference {
                uid: Some(uid.to_string()),
                ..ObjectReference::default()
            },
            aggregated: false,
        }
    }

    fn reasons(shard: &mut mpsc::Receiver<QueueItem>) -> Vec<String> {
        std::iter::from_fn(|| shard.try_recv().ok())
            .filter_map(|item| match item {
                QueueItem::Event(queued) => Some(queued.event.reason),
                QueueItem::Flush(_) => None,
            })
            .collect()
    }

    #[test]
    fn events_about_one_object_stay_in_order() {
        let (queue, mut shards) = EventQueue::new();
        for round in ["first", "second"] {
            (0..100).for_each(|uid| queue.enqueue(event(uid, round)));
        }
        let shards: Vec<_> = shards.iter_mut().map(reasons).collect();
        assert!(shards.iter().all(|shard| !shard.is_empty()));
        for shard in shards {
            assert!(shard.is_sorted(), "the first round comes first");
        }
    }

    #[test]
    fn full_shard_drops_events_without_waiting() {
        let (queue, mut shards) = EventQueue::new();
        (0..=SHARD_CAPACITY).for_each(|_| queue.enqueue(event(0, "same")));
        let queued: usize = shards.iter_mut().map(|shard| reasons(shard).len()).sum();
        assert_eq!(queued, SHARD_CAPACITY);
    }

    #[tokio::test]
    async fn dropped_events_are_logged_together() {
        let (queue, shards) = EventQueue::new();
        let unlogged = |queue: &EventQueue| queue.dropped.load(Ordering::Relaxed);
        (0..2000).for_each(|_| queue.enqueue(event(0, "same")));
        assert_eq!(unlogged(&queue), 2000 - SHARD_CAPACITY, "a burst");
        (0..SHARD_CAPACITY).for_each(|_| queue.enqueue(event(0, "same")));
        assert_eq!(unlogged(&queue), 2000 - SHARD_CAPACITY, "a longer burst");

        let client = ApiServerMock::client(|_| Reply::Object(200, json!({})));
        let mut context = Context::test(client);
        context.event_queue = queue;
        let context = Arc::new(context);
        for shard in shards {
            tokio::spawn(publish_shard(context.clone(), shard));
        }
        context.event_queue.flush().await;
        assert_eq!(unlogged(&context.event_queue), 0);
    }

    #[tokio::test]
    async fn flush_waits_for_all_shards() {
        let (queue, mut shards) = EventQueue::new();
        let flush = queue.flush();
        tokio::pin!(flush);
        for shard in &mut shards {
            assert!((&mut flush).now_or_never().is_none());
            let Some(QueueItem::Flush(done)) = shard.recv().await else {
                panic!("no flush in a shard");
            };
            done.send(()).unwrap();
        }
        flush.await;
    }
}
