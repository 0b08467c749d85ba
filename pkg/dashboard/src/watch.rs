//! The live state of one page as server-sent events.
//!
//! Each stream has its own watches, which end with it. A frame is built only when the page takes
//! it, from the newest state, and has only what changed since the last frame. So nothing is queued
//! for a page that reads slowly.

use std::{convert::Infallible, future::pending, mem, pin::pin, sync::Arc, time::Duration};

use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use di_client::{Cluster, JobQuery, LiveView, Permission};
use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, Stream},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, Interval, MissedTickBehavior, interval, sleep_until},
};

use crate::{
    actions::{Access, read_refused},
    error::Result,
    request::JobPath,
    rows::SentRows,
    shared::Shared,
    views::{self, ReplicaRow},
};

/// Minimum time between two frames: four a second, with the time to build them.
const FRAME_INTERVAL: Duration = Duration::from_millis(200);
/// Interval of the checks for interrupted watches.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The name and the data of an event.
type Message = (&'static str, Value);

#[derive(Debug, Deserialize)]
pub(crate) struct WatchQuery {
    namespace: Option<String>,
    job: Option<String>,
}

/// Streams the changes of the list, and of the open job.
pub(crate) async fn stream_changes(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<WatchQuery>, QueryRejection>,
) -> Result<Response> {
    let Query(WatchQuery { namespace, job }) = query?;
    let (cluster, all_namespaces) = shared.select_namespace(namespace.as_deref())?;
    let job = job.as_deref().map(JobPath::parse).transpose()?;
    let permit = shared.open_stream()?;
    let query = JobQuery {
        all_namespaces,
        ..JobQuery::default()
    };
    let open_job = job.map(|job| OpenJob::new(&shared.cluster, job, shared.read_only));
    let page = Page::new(LiveView::of_jobs(&cluster, &query), open_job, permit);
    let events = page.into_messages().map(|(name, data)| {
        let event = Event::default().event(name).data(data.to_string());
        Ok::<_, Infallible>(event)
    });
    Ok(Sse::new(events)
        .keep_alive(KeepAlive::new())
        .into_response())
}

/// A watched view with the rows that the page has.
struct Source<R> {
    /// `None` after the watch was refused.
    view: Option<LiveView>,
    /// The error of a refused watch.
    refused: Option<String>,
    changed: bool,
    rows: SentRows<R>,
}

impl<R: PartialEq + Serialize> Source<R> {
    fn new(view: LiveView) -> Self {
        Self {
            view: Some(view),
            refused: None,
            changed: false,
            rows: SentRows::new(),
        }
    }

    /// Waits for a change. Returns the error if the watch is refused.
    async fn wait_for_change(&mut self) -> Option<String> {
        let Some(view) = &mut self.view else {
            return pending().await;
        };
        match view.wait_for_change().await {
            Ok(()) => {
                self.changed = true;
                None
            }
            Err(error) => {
                self.view = None;
                Some(error.to_string())
            }
        }
    }

    /// The view, if it has changed since the last call and is complete.
    fn take_changed(&mut self) -> Option<&LiveView> {
        let view = self.view.as_ref().filter(|view| view.is_synced())?;
        mem::take(&mut self.changed).then_some(view)
    }

    /// Why the rows may be out of date.
    fn problem(&self) -> Option<&str> {
        let interrupted = self.view.as_ref().and_then(LiveView::watch_error);
        self.refused.as_deref().or(interrupted)
    }
}

/// The open job of a page.
pub(crate) struct OpenJob {
    job: JobPath,
    /// The cluster with the namespace of the job.
    cluster: Cluster,
    source: Source<ReplicaRow>,
    /// Why the pods are not shown.
    pods_hidden: Option<String>,
    access: Access,
    /// The review of the permissions, until it is complete.
    review: Option<BoxFuture<'static, Vec<Permission<'static>>>>,
    /// The last event `job`.
    sent: Value,
}

impl OpenJob {
    fn new(cluster: &Cluster, job: JobPath, read_only: bool) -> Self {
        let cluster = cluster.with_namespace(&job.namespace);
        let reviewer = cluster.clone();
        Self {
            source: Source::new(LiveView::new(&cluster, &query_for(&job))),
            cluster,
            pods_hidden: None,
            access: Access {
                namespace: job.namespace.clone(),
                refused: None,
                read_only,
            },
            review: Some(async move { read_refused(&reviewer).await }.boxed()),
            sent: Value::Null,
            job,
        }
    }

    async fn wait_for_change(&mut self) {
        tokio::select! {
            refused = self.source.wait_for_change() => {
                if let Some(error) = refused {
                    self.handle_refused_watch(error);
                }
            }
            refused = complete_review(&mut self.review) => {
                self.access.refused = Some(refused);
                self.source.changed = true;
            }
        }
    }

    /// Continues without pods. If the job itself may not be watched either, reports that.
    fn handle_refused_watch(&mut self, error: String) {
        if self.pods_hidden.is_some() {
            self.source.refused = Some(error);
        } else {
            let view = LiveView::of_jobs(&self.cluster, &query_for(&self.job));
            self.source.view = Some(view);
            self.pods_hidden = Some(error);
        }
    }

    fn take_events(&mut self) -> Vec<Message> {
        let pods_hidden = self.pods_hidden.as_deref();
        let Some(view) = self.source.take_changed() else {
            return Vec::new();
        };
        let job = view.find_job(&self.job.namespace, &self.job.name);
        let details = job.map(|job| views::job_details(job, &self.access, pods_hidden));
        let mut replicas = job.map(|job| view.replicas_of_job(job)).unwrap_or_default();
        for replica in &mut replicas {
            replica.unseen = pods_hidden.is_some();
        }
        let rows = views::replica_rows(replicas);
        let job = json!({"job": details});
        let mut events = Vec::new();
        if job != self.sent {
            events.push(("job", job.clone()));
            self.sent = job;
        }
        let rows = self.source.rows.update(rows);
        events.extend(rows.map(|rows| ("replicas", rows)));
        events
    }
}

/// Selects a single job.
fn query_for(job: &JobPath) -> JobQuery {
    JobQuery {
        name: Some(job.name.clone()),
        ..JobQuery::default()
    }
}

async fn wait_for_job(job: &mut Option<OpenJob>) {
    match job {
        Some(job) => job.wait_for_change().await,
        None => pending().await,
    }
}

async fn complete_review(
    review: &mut Option<BoxFuture<'static, Vec<Permission<'static>>>>,
) -> Vec<Permission<'static>> {
    let Some(running) = review else {
        return pending().await;
    };
    let refused = running.await;
    *review = None;
    refused
}

/// What one page watches.
pub(crate) struct Page {
    list: Source<Value>,
    open_job: Option<OpenJob>,
    /// The last event `problem`.
    problem: Value,
    next_frame_at: Instant,
    checks: Interval,
    _permit: OwnedSemaphorePermit,
}

impl Page {
    pub(crate) fn new(
        list: LiveView,
        open_job: Option<OpenJob>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let mut checks = interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            list: Source::new(list),
            open_job,
            problem: json!({"list": null, "job": null}),
            next_frame_at: Instant::now(),
            checks,
            _permit: permit,
        }
    }

    pub(crate) fn into_messages(self) -> impl Stream<Item = Message> + Send {
        let frames = stream::unfold(self, |mut page| async move {
            let frame = page.next_frame().await;
            Some((frame, page))
        });
        frames.flat_map(stream::iter)
    }

    /// Waits for changes, and returns them as one frame.
    async fn next_frame(&mut self) -> Vec<Message> {
        loop {
            self.wait_for_change().await;
            let mut pause = pin!(sleep_until(self.next_frame_at));
            loop {
                tokio::select! {
                    biased;
                    () = &mut pause => break,
                    () = self.wait_for_change() => {}
                }
            }
            let events = self.take_events();
            if !events.is_empty() {
                self.next_frame_at = Instant::now() + FRAME_INTERVAL;
                return events;
            }
        }
    }

    async fn wait_for_change(&mut self) {
        tokio::select! {
            refused = self.list.wait_for_change() => {
                if refused.is_some() {
                    self.list.refused = refused;
                }
            }
            () = wait_for_job(&mut self.open_job) => {}
            _ = self.checks.tick() => {}
        }
    }

    fn take_events(&mut self) -> Vec<Message> {
        let mut events = Vec::new();
        let rows = self.list.take_changed().map(|view| {
            let jobs = view.jobs();
            jobs.map(|job| (views::job_key(job), views::job_row(job)))
                .collect()
        });
        if let Some(rows) = rows.and_then(|rows| self.list.rows.update(rows)) {
            events.push(("jobs", rows));
        }
        if let Some(job) = &mut self.open_job {
            events.extend(job.take_events());
        }
        let job_problem = self.open_job.as_ref().and_then(|job| job.source.problem());
        let problem = json!({"list": self.list.problem(), "job": job_problem});
        if problem != self.problem {
            events.push(("problem", problem.clone()));
            self.problem = problem;
        }
        events
    }
}
