//! Runs the controller: watches, work queue, and background tasks.

use std::{future::Future, sync::Arc, time::Duration};

use di_api::{DIJob, Role, names};
use di_cache::{
    JobCache, Key, OptionalApi, WatchedJob, feed_aggregator_configs, feed_groups, feed_nodes,
    feed_pods, feed_services, feed_workloads, job_stream, stored_jobs,
};
use di_plan::GangScheduler;
use futures::{FutureExt, StreamExt, stream};
use kube::{
    Client, ResourceExt,
    runtime::{
        Controller,
        controller::{Action as Requeue, Config, Error as RunError},
        reflector::{ObjectRef, Store, store},
        watcher::{self, Event},
    },
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tracing::{debug, warn};

use crate::{
    Error, Metrics, Settings, backoff::INITIAL_DELAY, context::Context, error::Result,
    event_queue::EventQueue, events::publish_shard, metrics::ReasonLabel, reconcile::reconcile,
};

/// Delay after a conflict. Within this time the watch usually delivers the write of the other
/// client.
const CONFLICT_DELAY: Duration = Duration::from_millis(50);

/// Number of jobs that wait for a permit. Of all due jobs kube's `Controller` takes any one of a
/// hash set, so under constant load some would starve. The permits are granted in order. The
/// number is limited because kube polls all of these futures each time.
const QUEUE_DEPTH: u16 = 1024;

/// Running reconciles may take this long after the shutdown signal. The grace period of the pod is
/// 45 s.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Publishing the queued events may take this long after that.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Reconciles jobs until `shutdown` resolves.
///
/// # Errors
/// [`Error::WatchEnded`] when a watch task ends: decisions from a stale cache would be wrong.
pub async fn run(
    client: Client,
    settings: Settings,
    metrics: Metrics,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let shutdown = shutdown.shared();
    let (reader, writer) = store();
    metrics.jobs.set_store(reader.clone());
    metrics.max_concurrent.set(settings.concurrency.into());
    let errors = metrics.watch_errors.clone();
    let jobs = JobCache::new(reader.clone());
    let (event_queue, shards) = EventQueue::new();
    let context = Context::new(client.clone(), settings, metrics, jobs, event_queue);
    let context = Arc::new(context);
    let (pods, services) = (context.pods.clone(), context.services.clone());
    let (nodes, aggregators) = (context.nodes.clone(), context.aggregators.clone());
    let (changed, keys) = mpsc::channel::<Key>(1024);
    let (config_changed, configs) = mpsc::channel::<Key>(64);
    // The tasks are aborted when the set is dropped.
    let mut tasks = JoinSet::new();
    tasks.spawn(feed_pods(
        client.clone(),
        pods,
        changed.clone(),
        errors.clone(),
    ));
    tasks.spawn(feed_services(
        client.clone(),
        services,
        changed.clone(),
        errors.clone(),
    ));
    tasks.spawn(feed_nodes(client.clone(), nodes, errors.clone()));
    tasks.spawn(feed_aggregator_configs(
        client.clone(),
        aggregators,
        config_changed,
        errors,
    ));
    spawn_optional_feeds(&mut tasks, &context, &changed);
    tasks.spawn(requeue_on_config_change(context.clone(), configs, changed));
    for shard in shards {
        tasks.spawn(publish_shard(context.clone(), shard));
    }
    tasks.spawn(stop_dispatch(context.clone(), shutdown.clone()));
    let changed_jobs = stream::unfold(keys, |mut keys| async move {
        let (namespace, name) = keys.recv().await?;
        Some((ObjectRef::new(&name).within(&namespace), keys))
    });
    let config = Config::default().concurrency(QUEUE_DEPTH.max(context.settings.concurrency));
    let watch_context = context.clone();
    let events = job_stream(client, writer)
        .filter_map(move |event| std::future::ready(drop_watch_errors(&watch_context, event)));
    let jobs = stored_jobs(events, reader.clone());
    let reconciles = Controller::for_stream(jobs, reader.clone())
        .with_config(config)
        .reconcile_on(changed_jobs)
        .graceful_shutdown_on(shutdown.clone())
        .run(reconcile, error_policy, context.clone())
        .for_each(|result| {
            report_result(&context, result);
            std::future::ready(())
        });
    let ended = tokio::select! {
        () = reconciles => Ok(()),
        () = any_task_ended(&mut tasks, shutdown.clone()) => Err(Error::WatchEnded),
        () = drain_timeout(&reader, shutdown) => Ok(()),
    };
    // Best effort: it fails if the API server is down, or leadership was lost.
    timeout(FLUSH_TIMEOUT, context.event_queue.flush())
        .await
        .ok();
    ended
}

/// Feeds the objects of Kueue and of the gang scheduler, which not every cluster has.
fn spawn_optional_feeds(
    tasks: &mut JoinSet<()>,
    context: &Arc<Context>,
    changed: &mpsc::Sender<Key>,
) {
    let (client, errors) = (&context.client, &context.metrics.watch_errors);
    let discovery_interval = context.settings.discovery_interval;
    let queue_api = context.workloads.subscribe_api();
    tasks.spawn(feed_workloads(
        client.clone(),
        discovery_interval,
        context.workloads.clone(),
        changed.clone(),
        errors.clone(),
    ));
    tasks.spawn(requeue_on_api_change(
        context.clone(),
        queue_api,
        |job| job.queue_name().is_some(),
        changed.clone(),
    ));
    let gang_scheduler = context.settings.build.gang.as_ref();
    let Some(kind) = gang_scheduler.and_then(GangScheduler::group_kind) else {
        return;
    };
    let group_api = context.groups.subscribe_api();
    tasks.spawn(feed_groups(
        client.clone(),
        kind,
        discovery_interval,
        context.groups.clone(),
        changed.clone(),
        errors.clone(),
    ));
    tasks.spawn(requeue_on_api_change(
        context.clone(),
        group_api,
        |job| {
            let status = job.status.as_ref();
            let has_gang = status.is_some_and(|status| status.scheduling.is_some());
            has_gang || job.spec.scheduling.is_some()
        },
        changed.clone(),
    ));
}

/// Resolves [`DRAIN_TIMEOUT`] after `shutdown`. Resolves at once if the jobs were never listed: a
/// `Controller` that has not started does not end by itself.
async fn drain_timeout(jobs: &Store<WatchedJob>, shutdown: impl Future<Output = ()>) {
    shutdown.await;
    if let Some(Ok(())) = jobs.wait_until_ready().now_or_never() {
        sleep(DRAIN_TIMEOUT).await;
    }
}

/// Resolves when a task ends before `shutdown`. Tasks never end by themselves; after `shutdown`
/// they may.
async fn any_task_ended(tasks: &mut JoinSet<()>, shutdown: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = shutdown => std::future::pending().await,
        _ = tasks.join_next() => {}
    }
}

/// Requeues jobs that wait for an `AggregatorConfig` when one is created or changed.
async fn requeue_on_config_change(
    context: Arc<Context>,
    mut changed_configs: mpsc::Receiver<Key>,
    requeue: mpsc::Sender<Key>,
) {
    let is_waiting = |job: &DIJob| {
        let mut plan = job.status.iter().flat_map(|status| &status.plan);
        plan.any(|e| e.role == Role::Aggregator && e.is_wanted() && e.uid.is_none())
    };
    while let Some((namespace, _)) = changed_configs.recv().await {
        for job in context.jobs.list_all() {
            let key = (job.namespace().unwrap_or_default(), job.name_any());
            // A configuration in the system namespace is the default of all namespaces.
            let applies = namespace == names::SYSTEM_NAMESPACE || namespace == key.0;
            if !applies || !is_waiting(&job) {
                continue;
            }
            context.backoff.clear_delay(&key);
            if requeue.send(key).await.is_err() {
                return;
            }
        }
    }
}

/// Requeues the jobs that use an API when it can be used, or no longer.
async fn requeue_on_api_change<V>(
    context: Arc<Context>,
    mut api: watch::Receiver<OptionalApi<V>>,
    uses_api: fn(&DIJob) -> bool,
    requeue: mpsc::Sender<Key>,
) {
    while api.changed().await.is_ok() {
        for job in context.jobs.list_all() {
            if !uses_api(&job) {
                continue;
            }
            let key = (job.namespace().unwrap_or_default(), job.name_any());
            context.backoff.clear_delay(&key);
            if requeue.send(key).await.is_err() {
                return;
            }
        }
    }
}

/// Starts no reconcile after `shutdown`.
async fn stop_dispatch(context: Arc<Context>, shutdown: impl Future<Output = ()>) {
    shutdown.await;
    context.reconcile_permits.close();
}

/// Drops errors of the job watch, which retries by itself. The work queue would stop at an error.
fn drop_watch_errors(
    context: &Context,
    event: watcher::Result<Event<WatchedJob>>,
) -> Option<watcher::Result<Event<WatchedJob>>> {
    match event {
        Ok(event) => {
            context.jobs.on_event(&event);
            Some(Ok(event))
        }
        Err(error) => {
            context.metrics.watch_errors.for_resource("dijobs").inc();
            warn!(
                resource = "dijobs",
                error = &error as &dyn std::error::Error,
                "Watch failed, retrying"
            );
            None
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // the signature is kube's
fn error_policy(job: Arc<WatchedJob>, error: &Error, context: Arc<Context>) -> Requeue {
    let key = (job.namespace().unwrap_or_default(), job.name_any());
    let delay = context.backoff.record_failure(&key, error);
    // After the first conflict the watch is about to deliver the other write. After repeated ones
    // it lags, and only the backoff helps.
    let is_first_conflict = error.is_conflict() && delay <= INITIAL_DELAY;
    Requeue::requeue(if is_first_conflict {
        CONFLICT_DELAY
    } else {
        delay
    })
}

/// Counts and logs the result of a reconcile.
fn report_result(
    context: &Context,
    result: std::result::Result<(ObjectRef<WatchedJob>, Requeue), RunError<Error, watcher::Error>>,
) {
    match result {
        Ok(_) => {}
        Err(RunError::ObjectNotFound(job)) => {
            context.forget_job(&(job.namespace.unwrap_or_default(), job.name));
        }
        Err(RunError::ReconcilerFailed(error, job)) => {
            let reason = error.reason();
            context
                .metrics
                .failures
                .get_or_create(&ReasonLabel::from(reason))
                .inc();
            if error.is_transient() {
                debug!(job = %job, error = error.chain(), "Reconcile failed, retrying soon");
            } else {
                warn!(job = %job, %reason, error = error.chain(), "Reconcile failed");
            }
        }
        Err(error) => {
            context.metrics.queue_errors.inc();
            warn!(
                error = &error as &dyn std::error::Error,
                "Work queue failed, retrying"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn ended_task_is_reported_only_before_shutdown() {
        let mut tasks = JoinSet::new();
        tasks.spawn(pending());
        let early = any_task_ended(&mut tasks, pending()).now_or_never();
        assert!(early.is_none(), "the task still runs");
        tasks.spawn(async { panic!("a bug") });
        any_task_ended(&mut tasks, pending()).await;

        tasks.spawn(ready(()));
        tokio::task::yield_now().await;
        let late = any_task_ended(&mut tasks, ready(())).now_or_never();
        assert!(late.is_none(), "after shutdown tasks may end");
    }
}
