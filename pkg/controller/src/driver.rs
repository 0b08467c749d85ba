//! Drives the reconciles: watches and queue.

use std::{future::Future, sync::Arc, time::Duration};

use di_api::{DIJob, Role, names};
use di_cache::{
    JobCache, Key, PodCache, ServiceCache, WatchedJob, feed_aggregator_configs, feed_nodes,
    feed_pods, feed_services, job_stream, stored_jobs,
};
use futures::{FutureExt, StreamExt, stream};
use kube::{
    Client, ResourceExt,
    runtime::{
        Controller,
        controller::{Action as Next, Config, Error as RunError},
        reflector::{ObjectRef, Store, store},
        watcher::{self, Event},
    },
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};
use tracing::{debug, warn};

use crate::{
    Error, Metrics, Settings, backoff,
    context::Context,
    error::Result,
    metrics::ByReason,
    outbox::{Outbox, publish},
    reconcile::reconcile,
    unsent::{self, resend},
};

/// The watch brings what another wrote within this time.
const AFTER_CONFLICT: Duration = Duration::from_millis(50);

/// Jobs that wait in line for their turn. Of those that are due kube takes whichever comes first in a hash set, so that under load that lasts some
/// would wait for ever; it looks at all of these each time, which is why it is not any number.
const IN_LINE: u16 = 1024;

/// Reconciles that are under way at the shutdown have so long to end; a pod has 45 s for all of it.
const DRAIN: Duration = Duration::from_secs(15);
/// And what they had to tell.
const FLUSH: Duration = Duration::from_secs(5);

/// Reconciles jobs until `shutdown` resolves.
///
/// # Errors
/// [`Error::WatchEnded`], since nothing is right that is decided on a cache that nobody fills any more.
pub async fn run(
    client: Client,
    settings: Settings,
    metrics: Metrics,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let shutdown = shutdown.shared();
    let (reader, writer) = store();
    metrics.jobs.follow(reader.clone());
    metrics.max_concurrent.set(settings.concurrency.into());
    let errors = metrics.watch_errors.clone();
    let jobs = JobCache::new(reader.clone());
    let pods = Arc::new(PodCache::default());
    let services = Arc::new(ServiceCache::default());
    let (changed, keys) = mpsc::channel::<Key>(1024);
    // Aborted when dropped, however this ends.
    let mut feeds = JoinSet::new();
    feeds.spawn(feed_pods(
        client.clone(),
        pods.clone(),
        changed.clone(),
        errors.clone(),
    ));
    feeds.spawn(feed_services(
        client.clone(),
        services.clone(),
        changed.clone(),
        errors.clone(),
    ));
    let (outbox, lanes) = Outbox::new();
    let context = Arc::new(Context::new(
        client.clone(),
        settings,
        metrics,
        jobs,
        pods,
        services,
        outbox,
    ));
    let (unsent, kept) = mpsc::channel(unsent::MOST);
    for lane in lanes {
        feeds.spawn(publish(context.clone(), lane, unsent.clone()));
    }
    feeds.spawn(resend(context.clone(), kept));
    feeds.spawn(feed_nodes(
        client.clone(),
        context.nodes.clone(),
        errors.clone(),
    ));
    let (configured, configs) = mpsc::channel::<Key>(64);
    let aggregators = context.aggregators.clone();
    feeds.spawn(feed_aggregator_configs(
        client.clone(),
        aggregators,
        configured,
        errors,
    ));
    feeds.spawn(wake(context.clone(), configs, changed.clone()));
    feeds.spawn(probe(context.clone(), changed));
    feeds.spawn(close(context.clone(), shutdown.clone()));
    let concerned = stream::unfold(keys, |mut keys| async move {
        let (namespace, name) = keys.recv().await?;
        Some((ObjectRef::new(&name).within(&namespace), keys))
    });
    let config = Config::default().concurrency(IN_LINE.max(context.settings.concurrency));
    let watched = context.clone();
    let events = job_stream(client, writer)
        .filter_map(move |event| std::future::ready(keep_going(&watched, event)));
    let jobs = stored_jobs(events, reader.clone());
    let reconciles = Controller::for_stream(jobs, reader.clone())
        .with_config(config)
        .reconcile_on(concerned)
        .graceful_shutdown_on(shutdown.clone())
        .run(reconcile, error_policy, context.clone())
        .for_each(|result| {
            report(&context, result);
            std::future::ready(())
        });
    let ended = tokio::select! {
        () = reconciles => Ok(()),
        () = one_ends(&mut feeds, shutdown.clone()) => Err(Error::WatchEnded),
        () = waited_enough(&reader, shutdown) => Ok(()),
    };
    // In vain where the server does not answer, or this process leads no more.
    timeout(FLUSH, context.outbox.flush()).await.ok();
    ended
}

/// Resolves when reconciles have had their time after `shutdown`: none where the jobs were never listed, for a queue that did not begin does
/// not end by itself.
async fn waited_enough(jobs: &Store<WatchedJob>, shutdown: impl Future<Output = ()>) {
    shutdown.await;
    if let Some(Ok(())) = jobs.wait_until_ready().now_or_never() {
        tokio::time::sleep(DRAIN).await;
    }
}

/// Resolves when one of the tasks ends, which none does by itself before `shutdown`; then they may.
async fn one_ends(tasks: &mut JoinSet<()>, shutdown: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = shutdown => std::future::pending().await,
        _ = tasks.join_next() => {}
    }
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
            if !reached || !waits(&job) {
                continue;
            }
            context.backoff.end_wait(&key);
            if concerned.send(key).await.is_err() {
                return;
            }
        }
    }
}

/// Gives nobody a turn any more after `shutdown`.
async fn close(context: Arc<Context>, shutdown: impl Future<Output = ()>) {
    shutdown.await;
    context.turns.close();
}

/// Has the jobs looked at soon that wait for the API server, once it is well again: one at a time tries, and all when one has got through.
async fn probe(context: Arc<Context>, concerned: mpsc::Sender<Key>) {
    loop {
        sleep(backoff::PROBE_EVERY).await;
        for key in context.backoff.wake() {
            if concerned.send(key).await.is_err() {
                return;
            }
        }
    }
}

/// The watch tries again by itself. Told of its errors, the queue would hold up everything else meanwhile.
fn keep_going(
    context: &Context,
    event: watcher::Result<Event<WatchedJob>>,
) -> Option<watcher::Result<Event<WatchedJob>>> {
    match event {
        Ok(event) => {
            context.jobs.saw(&event);
            Some(Ok(event))
        }
        Err(error) => {
            context.metrics.watch_errors.of("dijobs").inc();
            warn!(
                resource = "dijobs",
                error = &error as &dyn std::error::Error,
                "Watch failed, trying again"
            );
            None
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // the signature is kube's
fn error_policy(job: Arc<WatchedJob>, error: &Error, context: Arc<Context>) -> Next {
    let key = (job.namespace().unwrap_or_default(), job.name_any());
    let wait = context.backoff.failed(&key, error);
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
                .get_or_create(&ByReason::from(reason))
                .inc();
            if error.is_passing() {
                debug!(job = %job, error = error.chain(), "Looking again soon");
            } else {
                warn!(job = %job, %reason, error = error.chain(), "Reconcile failed");
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

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_feed_that_ends_is_noticed_unless_all_is_to_end() {
        let mut feeds = JoinSet::new();
        feeds.spawn(pending());
        let early = one_ends(&mut feeds, pending()).now_or_never();
        assert!(early.is_none(), "it goes on");
        feeds.spawn(async { panic!("a fault of ours") });
        one_ends(&mut feeds, pending()).await;

        feeds.spawn(ready(()));
        tokio::task::yield_now().await;
        let late = one_ends(&mut feeds, ready(())).now_or_never();
        assert!(late.is_none(), "then they may");
    }
}
