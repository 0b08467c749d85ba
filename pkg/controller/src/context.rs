use std::{
    collections::{HashMap, HashSet},
    future::Future,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use di_api::{DIJob, DIJobStatus};
use di_cache::{AggregatorCache, JobCache, Key, NodeCache, PodCache, ServiceCache};
use di_plan::PodView;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::sync::Semaphore;

use crate::{
    Error, Metrics, Note, Settings, Trouble,
    backoff::Backoff,
    error::Result,
    metrics::{ByReason, Write},
    outbox::{News, Outbox},
    status::Held,
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
    /// Turns to reconcile, given in the order in which jobs ask for them; closed when all is to end.
    pub turns: Semaphore,
    /// Of these, those that jobs may have that [hang](Backoff::hangs): others get on meanwhile.
    pub turns_of_hanging: Semaphore,
    writes: Semaphore,
    recorder: Recorder,
    reporter: Reporter,
    pub outbox: Outbox,
    memory: Mutex<HashMap<Key, Memory>>,
}

/// What is remembered of a job between reconciles; losing it costs nothing but time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// The job that it is about: another of its name has no part in it.
    uid: Option<String>,
    pub trouble: Option<Trouble>,
    pub refused: Arc<Refused>,
    /// That the status is to be written for something that may wait.
    pub held: Option<Held>,
    /// When the status was written last.
    pub written: Option<Instant>,
    /// A status whose write was not answered, and what is to be told if it stands.
    pub unsaid: Option<Arc<(DIJobStatus, Vec<Note>)>>,
    /// Whether nothing that is done for it matters any more.
    pub moot: bool,
}

impl Memory {
    /// Whether nothing of what the job asks for is put off or held back.
    pub fn has_settled(&self) -> bool {
        self.refused.creates.is_empty() && self.held.is_none()
    }
}

/// What could not be made, and is not tried again before the job's wait is over, whatever else there is to do for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refused {
    /// By resource and name.
    pub creates: HashSet<(&'static str, String)>,
    /// Generation of the job by which they were tried: another may have mended it.
    pub generation: Option<i64>,
}

impl Context {
    pub fn new(
        client: Client,
        settings: Settings,
        metrics: Metrics,
        jobs: JobCache,
        pods: Arc<PodCache>,
        services: Arc<ServiceCache>,
        outbox: Outbox,
    ) -> Self {
        let reporter = Reporter {
            controller: di_api::names::labels::CONTROLLER_VALUE.to_owned(),
            instance: Some(settings.identity.clone()),
        };
        Self {
            recorder: Recorder::new(client.clone(), reporter.clone()),
            reporter,
            outbox,
            turns: Semaphore::new(settings.concurrency.into()),
            turns_of_hanging: Semaphore::new(usize::from(settings.concurrency).div_ceil(4)),
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

    /// Whether the cache has pods of this very job.
    pub fn has_pods(&self, job: &Key, uid: Option<&str>) -> bool {
        let own = |pod: &PodView| pod.belongs_to(uid.unwrap_or_default());
        self.pods.read(job, |pods| pods.iter().any(own))
    }

    /// Forgets a job of this name that is not this one.
    pub fn meet(&self, job: &Key, uid: Option<&str>) {
        if self.memory(job).uid.as_deref() != uid {
            self.forget(job);
            self.remember(job, |memory| memory.uid = uid.map(str::to_owned));
        }
    }

    pub fn remember(&self, job: &Key, change: impl FnOnce(&mut Memory)) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        change(memory.entry(job.clone()).or_default());
    }

    pub fn forget(&self, job: &Key) {
        self.backoff.forget(job);
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
        self.count(verb, resource);
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

    /// A read of one object, bounded in time.
    pub async fn get<T>(
        &self,
        resource: &'static str,
        what: impl FnOnce() -> String,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T> {
        self.count("get", resource);
        in_time(self.settings.call_timeout, what, call).await
    }

    fn count(&self, verb: &'static str, resource: &'static str) {
        self.metrics
            .writes
            .get_or_create(&Write { verb, resource })
            .inc();
    }

    /// Has it published what happened, soon.
    pub fn publish(&self, job: &DIJob, note: &Note) {
        self.publish_about(&job.object_ref(&()), note);
    }

    /// The same, of a job that is known by reference only.
    pub fn publish_about(&self, job: &ObjectReference, note: &Note) {
        self.metrics
            .events
            .get_or_create(&ByReason::from(note.reason))
            .inc();
        self.outbox.put(News {
            event: event(note),
            about: job.clone(),
            counted: note.warning || note.retried.is_some(),
        });
    }

    /// Sends an event.
    pub async fn send(&self, news: &News) -> Result<()> {
        let News {
            event,
            about,
            counted,
        } = news;
        // A recorder keeps all that it published for some minutes, to count what comes again, and goes through it each time: thousands of jobs that
        // begin would fill it with what comes once.
        let once;
        let recorder = if *counted {
            &self.recorder
        } else {
            once = Recorder::new(self.client.clone(), self.reporter.clone());
            &once
        };
        let call = recorder.publish(event, about);
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

fn event(note: &Note) -> Event {
    Event {
        type_: if note.warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: note.reason.to_string(),
        note: Some(shorten(&note.message)),
        // Events of one reason and action within some minutes become one, with a count and the first one's note.
        action: match note.retried {
            Some(resource) => format!("Retry {resource}"),
            None => format!("Reconcile {:x}", hash(&note.message)),
        },
        secondary: None,
    }
}

/// Tells texts apart while this process lasts.
pub(crate) fn hash(text: impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(text)
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
    use di_api::Reason;
    use kube::runtime::reflector::store;
    use prometheus_client::registry::Registry;

    use super::*;

    #[tokio::test]
    async fn a_job_made_anew_has_no_part_in_what_befell_the_old_one() {
        let nothing = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            http::Response::builder().body(kube::client::Body::empty())
        });
        let context = Context::new(
            Client::new(nothing, "ns"),
            Settings::default(),
            Metrics::new(&mut Registry::default()),
            JobCache::new(store().0),
            Arc::default(),
            Arc::default(),
            Outbox::new().0,
        );
        let job = ("ns".to_owned(), "job".to_owned());
        context.meet(&job, Some("old"));
        context.backoff.failed(&job, &Error::JobGone);
        context.remember(&job, |memory| memory.moot = true);
        context.meet(&job, Some("old"));
        assert!(context.memory(&job).moot && context.backoff.left(&job).is_some());
        context.meet(&job, Some("new"));
        assert!(!context.memory(&job).moot && context.backoff.left(&job).is_none());
    }

    #[tokio::test]
    async fn what_comes_once_is_not_kept_to_be_counted() {
        let methods = Arc::<Mutex<Vec<http::Method>>>::default();
        let asked = methods.clone();
        let client = Client::new(
            tower::service_fn(move |request: http::Request<kube::client::Body>| {
                asked.lock().unwrap().push(request.method().clone());
                let body = kube::client::Body::from(b"{\"metadata\":{}}".to_vec());
                std::future::ready(http::Response::builder().body(body))
            }),
            "ns",
        );
        let (outbox, mut lanes) = Outbox::new();
        let context = Context::new(
            client,
            Settings::default(),
            Metrics::new(&mut Registry::default()),
            JobCache::new(store().0),
            Arc::default(),
            Arc::default(),
            outbox,
        );
        let created = Note::normal(Reason::CoordinatorCreated, "created".to_owned());
        let refused = Note {
            retried: Some("pods"),
            ..Note::normal(Reason::CoordinatorCreated, "not created".to_owned())
        };
        let failed = Note::warning(Reason::CoordinatorRestarted, "exit code 1");
        for (note, again) in [
            (created, http::Method::POST),
            (refused, http::Method::PATCH),
            (failed, http::Method::PATCH),
        ] {
            for _ in 0..2 {
                context.publish_about(&ObjectReference::default(), &note);
            }
            for lane in &mut lanes {
                while let Ok(crate::outbox::Item::News(news)) = lane.try_recv() {
                    context.send(&news).await.unwrap();
                }
            }
            let methods = std::mem::take(&mut *methods.lock().unwrap());
            assert_eq!(methods, [http::Method::POST, again], "{}", note.message);
        }
    }

    #[test]
    fn only_what_is_tried_again_is_counted_with_what_says_something_else() {
        let action = |message: &str, retried| {
            let note = Note::warning(Reason::CoordinatorRestarted, message);
            event(&Note { retried, ..note }).action
        };
        for (other, retried, is_counted) in [
            ("exit code 1", None, true),
            ("exit code 2", None, false),
            ("exit code 2", Some("pods"), true),
        ] {
            let same = action("exit code 1", retried) == action(other, retried);
            assert_eq!(same, is_counted, "{other} {retried:?}");
        }
        let of = |resource| action("denied", Some(resource));
        assert_ne!(of("pods"), of("services"));
    }

    #[test]
    fn long_notes_are_cut_between_characters() {
        assert_eq!(shorten("short"), "short");
        let cut = shorten(&"🤖".repeat(300));
        assert!(cut.len() < 1024 && cut.ends_with("🤖…"));
    }
}
