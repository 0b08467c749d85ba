//! Reconciles one job: observes the cluster, computes a step, writes the status, applies the
//! actions, and emits events. A reconcile that changed anything is followed by another one.

use std::{sync::Arc, time::Duration};

use di_api::DIJobStatus;
use di_cache::{JobRef, Key, WatchedJob};
use kube::{
    ResourceExt,
    runtime::{controller::Action as Requeue, reflector::ObjectRef},
};
use rand::RngExt;
use tracing::{debug, instrument};

use crate::{
    Action, Error, Step,
    apply::{Applied, apply_actions},
    context::Context,
    debounce::DEBOUNCE,
    error::Result,
    error_report::{Failure, record_results, report_error},
    observe::{compute, observe, read_flavors, verify_live},
    status_writer::{Persisted, StatusWrite, replay_unacknowledged, write_status},
    stored_job::fail_invalid_spec,
    undecodable::fail_undecodable,
};

/// Each job is reconciled this often even without a change, in case a watch lost an event.
const RESYNC_PERIOD: Duration = Duration::from_secs(300);

/// Waits for a permit, and reconciles the newest state of the job.
pub(crate) async fn reconcile(job: Arc<WatchedJob>, context: Arc<Context>) -> Result<Requeue> {
    let key = (job.namespace().unwrap_or_default(), job.name_any());
    let _slow_permit = if context.backoff.is_unresponsive(&key) {
        // This semaphore is never closed.
        context.slow_lane.acquire().await.ok()
    } else {
        None
    };
    let Ok(_permit) = context.reconcile_permits.acquire().await else {
        // The semaphore is closed: the process shuts down.
        return Ok(Requeue::await_change());
    };
    let Some(job) = context
        .jobs
        .reflector_store()
        .get(&ObjectRef::from_obj(&*job))
    else {
        context.forget_job(&key);
        return Ok(Requeue::await_change());
    };
    // Boxed, so that the many reconciles that wait for a permit use little memory.
    Box::pin(reconcile_with_permit(job, &context)).await
}

#[instrument(skip_all, fields(namespace = job.namespace(), job = job.name_any()))]
async fn reconcile_with_permit(job: Arc<WatchedJob>, context: &Context) -> Result<Requeue> {
    let key = (job.namespace().unwrap_or_default(), job.name_any());
    context.reset_if_recreated(&key, job.uid().as_deref());
    if context.job_state(&key).terminal {
        return Ok(Requeue::await_change());
    }
    let _active = context.metrics.track_reconcile();
    wait_for_cache_sync(context).await?;
    let result = match &job.0 {
        Ok(_) => reconcile_decoded(context, &key, job.uid().as_deref()).await,
        Err(invalid) => reconcile_undecodable(context, &key, &invalid.error).await,
    };
    match &result {
        // With a pending status write, no request has shown that the API server works.
        Ok(_) if context.job_state(&key).is_settled() => context.backoff.forget(&key),
        Err(Failure { error, .. }) if error.is_terminal() => {
            debug!(error = error.chain(), "Stopped reconciling the job");
            context.update_state(&key, |state| state.terminal = true);
            return Ok(Requeue::await_change());
        }
        Err(Failure { error, .. }) if error.is_conflict() => {}
        Err(failed) if job.0.is_ok() => report_error(context, &key, failed).await,
        _ => {}
    }
    result.map_err(|failed| failed.error)
}

/// Waits until the caches of pods and services are filled. No decision is made before.
async fn wait_for_cache_sync(context: &Context) -> Result<()> {
    for mut cache in [
        context.pods.subscribe_synced(),
        context.services.subscribe_synced(),
    ] {
        let filled = cache.wait_for(|synced| *synced).await;
        filled.map_err(|_| Error::WatchEnded)?;
    }
    Ok(())
}

/// Reconciles the job with this UID. A new job with an invalid spec fails.
async fn reconcile_decoded(
    context: &Context,
    key: &Key,
    uid: Option<&str>,
) -> Result<Requeue, Failure> {
    Box::pin(replay_unacknowledged(context, key)).await?;
    let job = context.jobs.get(key);
    let Some(job) = job.filter(|job| job.metadata.uid.as_deref() == uid) else {
        // The job was deleted or recreated since. Its cache is about to show that.
        return Ok(Requeue::requeue(DEBOUNCE));
    };
    // Before anything is created. See docs/decisions/0013.
    if context.is_new(key, &job) && Box::pin(fail_invalid_spec(context, key)).await? {
        return Ok(Requeue::await_change());
    }
    reconcile_job(context, key, job).await
}

/// Reconciles a job once. No action is applied before the status that it follows from is stored.
async fn reconcile_job(context: &Context, key: &Key, job: JobRef) -> Result<Requeue, Failure> {
    let mut observed = observe(context, key, job);
    let mut step = compute(&observed);
    while step.needs_reads() {
        if !step.needs_live_read.is_empty() {
            verify_live(context, key, &mut observed, step.needs_live_read).await?;
        }
        read_flavors(context, &mut observed, step.needs_flavors).await?;
        step = compute(&observed);
    }
    defer_rejected_creates(context, key, &observed.job, &mut step);
    let persisted = write_status(context, key, &observed.job, step).await?;
    let applied = apply_actions(context, key, &persisted).await;
    context.queue_events(&persisted.job, &applied.events());
    conclude(context, key, &persisted, applied)
}

/// Cleans up after an ended job that cannot be decoded. Its status is not written, because a write
/// replaces all of it. See docs/decisions/0018.
async fn reconcile_undecodable(
    context: &Context,
    key: &Key,
    decode_error: &str,
) -> Result<Requeue, Failure> {
    let Some(ended) = fail_undecodable(context, key, decode_error).await? else {
        return Ok(Requeue::await_change());
    };
    let step = compute(&observe(context, key, ended.clone().into()));
    let persisted = Persisted::of_ended_job(ended, step);
    let applied = apply_actions(context, key, &persisted).await;
    context.queue_events(&persisted.job, &applied.events());
    conclude(context, key, &persisted, applied)
}

/// Removes the creates that the API server rejected from the step, until the backoff is over.
fn defer_rejected_creates(context: &Context, key: &Key, job: &JobRef, step: &mut Step) {
    let deferred = context.job_state(key).deferred_creates;
    if deferred.is_empty() {
        return;
    }
    let delay = context.backoff.remaining_delay(key);
    // A new generation of the spec may have fixed the error, so it is tried at once.
    let delay = delay.filter(|_| deferred.is_of(job.metadata.generation));
    match delay.filter(|_| deferred.remove_from(&mut step.actions)) {
        Some(delay) => step.requeue_within(delay),
        // The backoff is over, or the job does not desire these objects any more.
        None => context.update_state(key, |state| state.deferred_creates = Arc::default()),
    }
}

/// Records the results of the actions, and returns the time of the next reconcile.
fn conclude(
    context: &Context,
    key: &Key,
    persisted: &Persisted,
    applied: Applied<'_>,
) -> Result<Requeue, Failure> {
    let has_changed = record_results(context, key, &persisted.job, applied)?;
    if let StatusWrite::Debounced(delay) = persisted.write {
        return Ok(Requeue::requeue(delay));
    }
    let state = context.job_state(key);
    let is_solved = state.last_error.is_some() && state.deferred_creates.is_empty();
    context.update_state(key, |state| {
        if is_solved {
            state.last_error = None;
        }
        // The cache shows a deleted job until the watch catches up.
        state.terminal |= persisted.actions().contains(&Action::DeleteJob);
    });
    if has_changed || persisted.write == StatusWrite::Due || is_solved {
        return Ok(Requeue::requeue(Duration::ZERO));
    }
    if !persisted.actions().is_empty() {
        // Usually the watch soon delivers the missing change. The error adds a backoff, in case it
        // does not.
        return Err(Error::NoProgress.into());
    }
    Ok(requeue_for(persisted))
}

/// Returns the time of the next reconcile of a job without changes. An ended job needs no resync.
fn requeue_for(persisted: &Persisted) -> Requeue {
    let status = persisted.job.status.as_ref();
    let has_ended = status.is_some_and(DIJobStatus::has_ended);
    // Jitter spreads the resyncs of jobs that were listed together.
    let resync = RESYNC_PERIOD.mul_f64(rand::rng().random_range(0.8..1.2));
    match persisted.requeue_after {
        Some(delay) if has_ended => Requeue::requeue(delay),
        None if has_ended => Requeue::await_change(),
        delay => Requeue::requeue(delay.map_or(resync, |delay| delay.min(resync))),
    }
}

#[cfg(test)]
mod tests;
