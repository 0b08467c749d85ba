use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use di_api::{DIJob, DIJobStatus};
use di_cache::{AggregatorCache, JobCache, Key, NodeCache, PodCache, ServiceCache};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::sync::{Semaphore, mpsc};
use tracing::warn;

use crate::{
    Error, Metrics, Note, Settings, Trouble,
    backoff::Backoff,
    error::Result,
    metrics::{ByReason, Write},
    unsent::Unsent,
};

/// What every reconcile shares.
pub(crate) struct Context {
    pub client: Client,
    pub settings: Settings,
    pub metrics: Metrics,
    pub jobs: JobCache,
    pub pods: Arc<PodCache>,
    pub services: Arc<ServiceCache>,
    pub nodes: Arc<NodeCache>,
    pub aggregators: Arc<AggregatorCache>,
    pub backoff: Backoff,
    writes: Semaphore,
    recorder: Recorder,
    unsent: mpsc::Sender<Unsent>,
    memory: Mutex<HashMap<Key, Memory>>,
}

/// What is remembered of a job between reconciles; losing it costs nothing but time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    pub trouble: Option<Trouble>,
    pub status_written: Option<Instant>,
    /// A status whose write was not answered, and what is to be told if it stands.
    pub unsaid: Option<Arc<(DIJobStatus, Vec<Note>)>>,
    /// UID of a job for which nothing that is done matters any more.
    pub moot: Option<String>,
}

impl Context {
    pub fn new(
        client: Client,
        settings: Settings,
        metrics: Metrics,
        jobs: JobCache,
        pods: Arc<PodCache>,
        services: Arc<ServiceCache>,
        unsent: mpsc::Sender<Unsent>,
    ) -> Self {
        let reporter = Reporter {
            controller: di_api::names::labels::CONTROLLER_VALUE.to_owned(),
            instance: Some(settings.identity.clone()),
        };
        Self {
            recorder: Recorder::new(client.clone(), reporter),
            unsent,
            writes: Semaphore::new(settings.writes_in_flight),
            client,
            settings,
            metrics,
            jobs,
            pods,
            services,
            nodes: Arc::default(),
            aggregators: Arc::default(),
            backoff: Backoff::default(),
            memory: Mutex::default(),
        }
    }

    pub fn memory(&self, job: &Key) -> Memory {
        self.memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(job)
            .cloned()
            .unwrap_or_default()
    }

    pub fn remember(&self, job: &Key, change: impl FnOnce(&mut Memory)) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        change(memory.entry(job.clone()).or_default());
    }

    pub fn forget(&self, job: &Key) {
        self.backoff.reset(job);
        self.memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(job);
    }

    /// One write: bounded in number over all jobs, and in time, and made only while this process leads.
    pub async fn write<T>(
        &self,
        verb: &'static str,
        resource: &'static str,
        what: impl FnOnce() -> String,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T> {
        // The semaphore is never closed; were it, the write would only go unbounded.
        let _permit = self.writes.acquire().await.ok();
        self.metrics
            .writes
            .get_or_create(&Write { verb, resource })
            .inc();
        let term = self.settings.term.clone();
        // Boxed: what publishes events is large, and every reconcile would hold room for it.
        let call = Box::pin(async move {
            if let Some(term) = term {
                term.lasting().await;
            }
            call.await
        });
        in_time(self.settings.call_timeout, what, call).await
    }

    /// Publishes what happened. An event that cannot be written is sent again later, or logged: it must not hold up the job.
    pub async fn publish(&self, job: &DIJob, note: &Note) {
        self.publish_about(&job.object_ref(&()), note).await;
    }

    /// The same, of a job that is known by reference only.
    pub async fn publish_about(&self, job: &ObjectReference, note: &Note) {
        let event = Event {
            type_: if note.warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: note.reason.to_string(),
            note: Some(shorten(&note.message)),
            // Events of one reason and action within some minutes become one, with a count.
            action: match &note.replica {
                Some(replica) => format!("Reconcile {replica}"),
                None => "Reconcile".to_owned(),
            },
            secondary: None,
        };
        self.metrics
            .events
            .get_or_create(&ByReason::from(note.reason))
            .inc();
        let Err(error) = self.send(&event, job).await else {
            return;
        };
        let about = job.clone();
        let kept = error.may_pass() && self.unsent.try_send(Unsent { event, about }).is_ok();
        if !kept && !error.is_moot() {
            warn!(
                reason = %note.reason,
                error = &error as &dyn std::error::Error,
                "Could not publish an event"
            );
        }
    }

    /// Sends an event.
    pub async fn send(&self, event: &Event, about: &ObjectReference) -> Result<()> {
        let call = self.recorder.publish(event, about);
        let what = || "publish an event".to_owned();
        self.write("create", "events", what, call).await
    }
}

/// A call to the API server with a deadline.
pub(crate) async fn in_time<T>(
    deadline: Duration,
    what: impl FnOnce() -> String,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(deadline, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(Error::Api {
            what: what(),
            source: Box::new(source),
        }),
        Err(_) => Err(Error::Timeout {
            what: what(),
            seconds: deadline.as_secs(),
        }),
    }
}

/// The note of an event holds 1 KiB at most.
fn shorten(text: &str) -> String {
    const LONGEST: usize = 1000;
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let cut: String = text
        .char_indices()
        .take_while(|(at, _)| *at < LONGEST)
        .map(|(_, c)| c)
        .collect();
    format!("{cut}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_notes_are_cut_between_characters() {
        assert_eq!(shorten("short"), "short");
        let cut = shorten(&"🤖".repeat(300));
        assert!(cut.len() < 1024 && cut.ends_with("🤖…"));
    }
}
