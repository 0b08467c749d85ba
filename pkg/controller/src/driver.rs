//! Drives the reconciles: watches, queue, status writes.

use std::{
    collections::HashMap,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use di_api::{DIJob, Role, names};
use di_cache::{
    JobCache, Key, PodCache, ServiceCache, WatchedJob, feed_aggregator_configs, feed_nodes,
    feed_pods, feed_services, job_stream,
};
use di_plan::{PodView, RandomSuffixes};
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    runtime::{
        Controller, WatchStreamExt,
        controller::{Action as Next, Config, Error as RunError},
        reflector::{ObjectRef, store},
        watcher,
    },
};
use rand::RngExt;
use tokio::{sync::mpsc, task::JoinSet};
use tracing::{debug, instrument, warn};

use crate::{
    Error, Metrics, Note, Observed, Settings, Step, Trouble,
    act::{IN_PARALLEL, act},
    backoff,
    context::{Context, in_time},
    error::Result,
    metrics::Reason,
    raw,
    status::{COUNTS_EVERY, may_wait, stands, write_status},
    step,
};

/// A job is looked at this often even if nothing seems to change, in case a watch lost something.
const SAFETY_NET: Duration = Duration::from_secs(300);
/// The watch brings what another wrote within this time.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);
/// Looks at a job in one reconcile: status, actions, status of what they did. More come by the watch.
const LOOKS: usize = 6;

/// Reconciles jobs until `shutdown` resolves.
pub async fn run(
    client: Client,
    settings: Settings,
    metrics: Metrics,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let (reader, writer) = store();
    let jobs = JobCache::new(reader.clone());
    let pods = Arc::new(PodCache::default());
    let services = Arc::new(ServiceCache::default());
    let (changed, keys) = mpsc::channel::<Key>(1024);
    // Aborted when dropped, however this ends.
    let mut feeds = JoinSet::new();
    feeds.spawn(feed_pods(client.clone(), pods.clone(), changed.clone()));
    feeds.spawn(feed_services(
        client.clone(),
        services.clone(),
        changed.clone(),
    ));
    let context = Arc::new(Context::new(
        client.clone(),
        settings,
        metrics,
        jobs,
        pods,
        services,
    ));
    feeds.spawn(feed_nodes(client.clone(), context.nodes.clone()));
    let (configured, configs) = mpsc::channel::<Key>(64);
    let aggregators = context.aggregators.clone();
    feeds.spawn(feed_aggregator_configs(
        client.clone(),
        aggregators,
        configured,
    ));
    feeds.spawn(wake(context.clone(), configs, changed));
    let concerned = stream::unfold(keys, |mut keys| async move {
        let (namespace, name) = keys.recv().await?;
        Some((ObjectRef::new(&name).within(&namespace), keys))
    });
    let config = Config::default().concurrency(context.settings.concurrency);
    let watched = context.clone();
    let jobs = job_stream(client, writer)
        .touched_objects()
        .filter_map(move |job| std::future::ready(keep_going(&watched, job)));
    Controller::for_stream(jobs, reader)
        .with_config(config)
        .reconcile_on(concerned)
        .graceful_shutdown_on(shutdown)
        .run(reconcile, error_policy, context.clone())
        .for_each(|result| {
            report(&context, result);
            std::future::ready(())
        })
        .await;
}

/// Has the jobs looked at that wait for an `AggregatorConfig`, when one comes or changes.
async fn wake(
    context: Arc<Context>,
    mut configs: mpsc::Receiver<Key>,
    concerned: mpsc::Sender<Key>,
) {
    let waits = |job: &DIJob| {
        let mut plan = job.status.iter().flat_map(|status| &status.plan);
        plan.any(|e| e.role == Role::Aggregator && e.is_wanted() && e.uid.is_none())
    };
    while let Some((namespace, _)) = configs.recv().await {
        for job in context.jobs.all() {
            let key = (job.namespace().unwrap_or_default(), job.name_any());
            let reached = namespace == names::SYSTEM_NAMESPACE || namespace == key.0;
            if reached && waits(&job) && concerned.send(key).await.is_err() {
                return;
            }
        }
    }
}

/// The watch tries again by itself. Told of its errors, the queue would hold up everything else meanwhile.
fn keep_going<T>(context: &Context, event: watcher::Result<T>) -> Option<watcher::Result<T>> {
    match event {
        Ok(event) => Some(Ok(event)),
        Err(error) => {
            context.metrics.watch_errors.inc();
            warn!(
                error = &error as &dyn std::error::Error,
                "Watch failed, trying again"
            );
            None
        }
    }
}

/// No decision is made before the caches are filled.
async fn synced(context: &Context) -> Result<()> {
    let mut pods = context.pods.synced();
    pods.wait_for(|synced| *synced)
        .await
        .map_err(|_| Error::NotSynced("pods"))?;
    let mut services = context.services.synced();
    services
        .wait_for(|synced| *synced)
        .await
        .map_err(|_| Error::NotSynced("services"))?;
    Ok(())
}

#[instrument(skip_all, fields(namespace = job.namespace(), job = job.name_any()))]
async fn reconcile(job: Arc<WatchedJob>, context: Arc<Context>) -> Result<Next> {
    let key = (job.namespace().unwrap_or_default(), job.name_any());
    let started = Instant::now();
    context.metrics.reconciles.inc();
    if let Err(invalid) = &job.0 {
        raw::fail_undecodable(&context, invalid).await?;
        return Ok(Next::await_change());
    }
    synced(&context).await?;
    let result = looks(&context, &key).await;
    context
        .metrics
        .duration
        .observe(started.elapsed().as_secs_f64());
    match &result {
        Ok(_) => context.backoff.reset(&key),
        Err(error) if error.is_conflict() => {}
        Err(error) => note_trouble(&context, &key, error).await,
    }
    result
}

/// Looks, decides, writes the status, acts; again until nothing is left to do.
async fn looks(context: &Context, key: &Key) -> Result<Next> {
    Box::pin(tell_unsaid(context, key)).await?;
    // Once in a job's life: afterwards it has a status.
    if is_new(context, key) && Box::pin(raw::fail_invalid(context, key)).await? {
        return Ok(Next::await_change());
    }
    let mut trouble = context.memory(key).trouble;
    let mut asked = HashMap::new();
    for _ in 0..LOOKS {
        let Some(job) = context.jobs.get(key) else {
            context.forget(key);
            return Ok(Next::await_change());
        };
        asked.extend(seen_going(context, &job).map(|name| (name, false)));
        let step = look(context, key, &job, trouble.as_ref(), &asked);
        if !step.ask.is_empty() {
            asked.extend(ask_for(context, key, step.ask).await?);
            continue;
        }
        let old = job.status.as_ref();
        let acts_first = !step.actions.is_empty() && stands(old, &step.status);
        if old != Some(&step.status) && !acts_first {
            if let Some(wait) = may_wait(context, key, old, &step) {
                return Ok(Next::requeue(wait));
            }
            write_and_tell(context, key, &job, step).await?;
            continue;
        }
        if step.actions.is_empty() && trouble.is_none() {
            return Ok(next(&step, &job));
        }
        act(context, &job, key, &step.actions).await?;
        trouble = None;
        context.remember(key, |memory| memory.trouble = None);
    }
    // Something keeps changing; others get their turn in between.
    Ok(Next::requeue(COUNTS_EVERY))
}

fn is_new(context: &Context, key: &Key) -> bool {
    let job = context.jobs.get(key);
    job.is_some_and(|job| {
        job.metadata.deletion_timestamp.is_none()
            && job
                .status
                .as_ref()
                .is_none_or(|status| status.phase.is_none() && status.plan.is_empty())
    })
}

/// Writes the status, then tells what it says has happened.
async fn write_and_tell(context: &Context, key: &Key, job: &DIJob, step: Step) -> Result<()> {
    let sent = (!step.notes.is_empty()).then(|| step.status.clone());
    let written = write_status(context, key, job, step.status).await;
    match (written, sent) {
        (Ok(()), _) => publish_all(context, job, &step.notes).await,
        (Err(error), Some(status)) if error.may_be_done() => {
            let unsaid = Arc::new((status, step.notes));
            context.remember(key, |memory| memory.unsaid = Some(unsaid));
            return Err(error);
        }
        (Err(error), _) => return Err(error),
    }
    Ok(())
}

/// A status whose write was not answered may stand all the same, and then the step does not find again what happened.
async fn tell_unsaid(context: &Context, key: &Key) -> Result<()> {
    let Some(unsaid) = context.memory(key).unsaid else {
        return Ok(());
    };
    let api: Api<DIJob> = Api::namespaced(context.client.clone(), &key.0);
    let what = || "get the job".to_owned();
    let job = in_time(context.settings.call_timeout, what, api.get_opt(&key.1)).await?;
    context.remember(key, |memory| memory.unsaid = None);
    let (status, notes) = &*unsaid;
    if let Some(job) = job.filter(|job| job.status.as_ref() == Some(status)) {
        publish_all(context, &job, notes).await;
        context.jobs.written(Arc::new(job));
    }
    Ok(())
}

async fn publish_all(context: &Context, job: &DIJob, notes: &[Note]) {
    for note in notes {
        context.publish(job, note).await;
    }
}

/// Replicas whose pod the watch has shown going.
fn seen_going(context: &Context, job: &DIJob) -> impl Iterator<Item = String> {
    let plan = job.status.iter().flat_map(|status| &status.plan);
    plan.filter(|entry| {
        entry
            .uid
            .as_ref()
            .is_some_and(|uid| context.pods.saw_go(uid))
    })
    .map(|entry| entry.name.clone())
}

/// Asks the server for pods, and returns whether it has them.
async fn ask_for(context: &Context, key: &Key, names: Vec<String>) -> Result<Vec<(String, bool)>> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.0);
    let calls = names.into_iter().map(|name| {
        let api = api.clone();
        async move {
            let what = || format!("get pods {name}");
            let found = in_time(context.settings.call_timeout, what, api.get_opt(&name)).await?;
            let view = found.as_ref().and_then(PodView::new);
            let there = view.is_some();
            if let Some(view) = view {
                context.pods.created(view);
            }
            Ok((name, there))
        }
        .boxed()
    });
    let calls: Vec<BoxFuture<'_, Result<_>>> = calls.collect();
    stream::iter(calls)
        .buffer_unordered(IN_PARALLEL)
        .try_collect()
        .await
}

fn look(
    context: &Context,
    key: &Key,
    job: &DIJob,
    trouble: Option<&Trouble>,
    asked: &HashMap<String, bool>,
) -> Step {
    let pods = context.pods.of_job(key);
    let services = context.services.of_job(key);
    let nodes = context.nodes.all();
    let aggregator = context.aggregators.of(&key.0);
    let now = Timestamp::now();
    let seen = Observed {
        job,
        pods: &pods,
        services: &services,
        nodes: nodes.as_deref(),
        aggregator: &aggregator,
        trouble,
        asked,
        // Kubernetes' times are whole seconds.
        now: Timestamp::from_second(now.as_second()).unwrap_or(now),
    };
    step(&seen, &mut RandomSuffixes)
}

fn next(step: &Step, job: &DIJob) -> Next {
    let ended = job
        .status
        .as_ref()
        .and_then(|status| status.phase)
        .is_some_and(di_api::Phase::is_terminal);
    let look = SAFETY_NET.mul_f64(rand::rng().random_range(0.8..1.2));
    match step.again {
        Some(again) if ended => Next::requeue(again),
        None if ended => Next::await_change(),
        again => Next::requeue(again.map_or(look, |again| again.min(look))),
    }
}

/// Keeps what went wrong for the status and tells of it.
async fn note_trouble(context: &Context, key: &Key, error: &Error) {
    let trouble = Trouble {
        reason: error.reason(),
        message: error.chain(),
    };
    let note = Note {
        warning: !error.is_passing(),
        ..Note::normal(trouble.reason, trouble.message.clone())
    };
    context.remember(key, |memory| memory.trouble = Some(trouble));
    let Some(job) = context.jobs.get(key) else {
        return;
    };
    context.publish(&job, &note).await;
    let memory = context.memory(key);
    if memory.unsaid.is_some() {
        // Another status would hide whether that one stands.
        return;
    }
    let trouble = memory.trouble;
    let step = look(context, key, &job, trouble.as_ref(), &HashMap::new());
    if job.status.as_ref() != Some(&step.status)
        && let Err(error) = write_status(context, key, &job, step.status).await
    {
        debug!(
            error = error.chain(),
            "Status does not tell of the error yet"
        );
    }
}

#[allow(clippy::needless_pass_by_value)] // the signature is kube's
fn error_policy(job: Arc<WatchedJob>, error: &Error, context: Arc<Context>) -> Next {
    let key = (job.namespace().unwrap_or_default(), job.name_any());
    let wait = context.backoff.failed(&key);
    // The watch is about to bring what somebody else wrote; if it does not, waiting is all there is to do.
    let soon = error.is_conflict() && wait <= backoff::FIRST;
    Next::requeue(if soon { AFTER_CONFLICT } else { wait })
}

fn report(
    context: &Context,
    result: std::result::Result<(ObjectRef<WatchedJob>, Next), RunError<Error, watcher::Error>>,
) {
    match result {
        Ok(_) => {}
        Err(RunError::ObjectNotFound(job)) => {
            context.forget(&(job.namespace.unwrap_or_default(), job.name));
        }
        Err(RunError::ReconcilerFailed(error, job)) => {
            let reason = error.reason();
            context
                .metrics
                .failures
                .get_or_create(&Reason { reason })
                .inc();
            if error.is_passing() {
                debug!(job = %job, error = error.chain(), "Looking again soon");
            } else {
                warn!(job = %job, reason, error = error.chain(), "Reconcile failed");
            }
        }
        Err(error) => {
            context.metrics.queue_errors.inc();
            warn!(
                error = &error as &dyn std::error::Error,
                "Queue failed, trying again"
            );
        }
    }
}
