//! Kubernetes events: built from [`EventRecord`]s, queued, and published.

use std::{sync::Arc, time::Duration};

use di_api::DIJob;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Resource,
    runtime::events::{Event, EventType, Recorder},
};

use tokio::{sync::mpsc, time::sleep};
use tracing::warn;

use crate::{
    EventRecord,
    context::Context,
    error::Result,
    event_queue::{QueueItem, QueuedEvent, hash_of},
    metrics::ReasonLabel,
};

impl Context {
    /// Queues an event about a job. It never waits.
    pub fn queue_event(&self, job: &DIJob, record: &EventRecord) {
        self.queue_event_about(&job.object_ref(&()), record);
    }

    /// Queues an event about the job that a reference names.
    pub fn queue_event_about(&self, job: &ObjectReference, record: &EventRecord) {
        self.metrics
            .events
            .get_or_create(&ReasonLabel::from(record.reason))
            .inc();
        self.event_queue.enqueue(QueuedEvent {
            event: build_event(record),
            regarding: job.clone(),
            aggregated: record.warning || record.series_key.is_some(),
        });
    }

    /// Queues events about a job.
    pub fn queue_events(&self, job: &DIJob, records: &[EventRecord]) {
        for record in records {
            self.queue_event(job, record);
        }
    }

    /// Publishes an event at the API server.
    pub async fn publish_event(&self, queued: &QueuedEvent) -> Result<()> {
        let QueuedEvent {
            event,
            regarding,
            aggregated,
        } = queued;
        // A `Recorder` caches each event for some minutes to count repetitions, and scans its
        // cache at each publish. Events that do not repeat get a recorder that is dropped, else
        // the start of thousands of jobs would fill the cache.
        let uncached;
        let recorder = if *aggregated {
            &self.recorder
        } else {
            uncached = Recorder::new(self.client.clone(), self.reporter.clone());
            &uncached
        };
        let call = recorder.publish(event, regarding);
        let operation = || {
            let name = regarding.name.as_deref().unwrap_or_default();
            format!("publish event {} about DIJob {name}", event.reason)
        };
        self.write("create", "events", operation, call).await
    }
}

/// Maximum number of tries to publish an event. With the delays they take most of a minute, about
/// as long as an API server restarts.
const MAX_TRIES: u32 = 10;
const INITIAL_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Publishes the events of a shard one after the other, as client-go's broadcaster does.
pub(crate) async fn publish_shard(context: Arc<Context>, mut shard: mpsc::Receiver<QueueItem>) {
    while let Some(item) = shard.recv().await {
        if shard.is_empty() {
            // The burst is over.
            context.event_queue.log_dropped();
        }
        match item {
            QueueItem::Event(event) => publish_with_retries(&context, &event).await,
            QueueItem::Flush(done) => {
                done.send(()).ok();
            }
        }
    }
}

/// Publishes an event. Retries it while the API server fails.
async fn publish_with_retries(context: &Context, queued: &QueuedEvent) {
    for attempt in 1..=MAX_TRIES {
        match context.publish_event(queued).await {
            Err(error) if error.is_retryable() && attempt < MAX_TRIES => {
                sleep(retry_delay(attempt)).await;
            }
            Err(error) if !error.is_terminal() => {
                let reason = &queued.event.reason;
                warn!(reason, error = error.chain(), "Cannot publish an event");
                return;
            }
            _ => return,
        }
    }
}

fn retry_delay(attempt: u32) -> Duration {
    INITIAL_RETRY_DELAY
        .saturating_mul(1 << (attempt - 1))
        .min(MAX_RETRY_DELAY)
}

fn build_event(record: &EventRecord) -> Event {
    Event {
        type_: if record.warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: record.reason.to_string(),
        note: Some(truncate_note(&record.message)),
        // The recorder merges events of the same reason and action into one with a count and the
        // note of the first.
        action: match record.series_key {
            Some(resource) => format!("Retry {resource}"),
            None => format!("Reconcile {:x}", hash_of(&record.message)),
        },
        secondary: None,
    }
}

/// Shortens the note of an event: the API server rejects notes above 1 KiB.
fn truncate_note(text: &str) -> String {
    const MAX_BYTES: usize = 1000;
    if text.len() <= MAX_BYTES {
        return text.to_owned();
    }
    let cut: String = text
        .char_indices()
        .take_while(|(offset, _)| *offset < MAX_BYTES)
        .map(|(_, c)| c)
        .collect();
    format!("{cut}…")
}

#[cfg(test)]
mod tests {
    use di_api::Reason;
    use di_fixtures::{ApiServerMock, Reply};
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::event_queue::EventQueue;

    #[tokio::test]
    async fn unrepeated_event_is_not_cached_for_counting() {
        let (mock, client) = ApiServerMock::new(|_| Reply::Object(200, json!({"metadata": {}})));
        let mut context = Context::test(client);
        let (event_queue, mut shards) = EventQueue::new();
        context.event_queue = event_queue;
        let created = EventRecord::normal(Reason::CoordinatorCreated, "created".to_owned());
        let rejected = EventRecord {
            series_key: Some("pods"),
            ..EventRecord::normal(Reason::CoordinatorCreated, "not created".to_owned())
        };
        let failed = EventRecord::warning(Reason::CoordinatorRestarted, "exit code 1");
        for (record, second) in [
            (created, Method::POST),
            (rejected, Method::PATCH),
            (failed, Method::PATCH),
        ] {
            let earlier = mock.requests().len();
            for _ in 0..2 {
                context.queue_event_about(&ObjectReference::default(), &record);
            }
            for shard in &mut shards {
                while let Ok(QueueItem::Event(queued)) = shard.try_recv() {
                    context.publish_event(&queued).await.unwrap();
                }
            }
            let requests = mock.requests().into_iter().skip(earlier);
            let methods: Vec<_> = requests.map(|request| request.method).collect();
            assert_eq!(methods, [Method::POST, second], "{}", record.message);
        }
    }

    #[test]
    fn event_with_series_key_is_aggregated_despite_other_message() {
        let action = |message: &str, series_key| {
            let record = EventRecord::warning(Reason::CoordinatorRestarted, message);
            build_event(&EventRecord {
                series_key,
                ..record
            })
            .action
        };
        for (other, series_key, is_aggregated) in [
            ("exit code 1", None, true),
            ("exit code 2", None, false),
            ("exit code 2", Some("pods"), true),
        ] {
            let same = action("exit code 1", series_key) == action(other, series_key);
            assert_eq!(same, is_aggregated, "{other} {series_key:?}");
        }
        let denied = |resource| action("denied", Some(resource));
        assert_ne!(denied("pods"), denied("services"));
    }

    #[test]
    fn retry_delay_doubles_to_ten_seconds() {
        let delays: Vec<_> = (1..=MAX_TRIES)
            .map(|attempt| retry_delay(attempt).as_secs_f64())
            .collect();
        assert_eq!(delays[..5], [0.5, 1.0, 2.0, 4.0, 8.0]);
        assert_eq!(delays[5..], [10.0; 5]);
    }

    #[test]
    fn long_note_is_cut_between_characters() {
        assert_eq!(truncate_note("short"), "short");
        let cut = truncate_note(&"🤖".repeat(300));
        assert!(cut.len() < 1024 && cut.ends_with("🤖…"));
    }
}
