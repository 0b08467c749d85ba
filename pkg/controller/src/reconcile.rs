//! Reconciles one job: observes the cluster, computes a step, writes the status and applies the
//! actions, until nothing is left to do.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use di_api::{ConditionType, DIJob, DIJobStatus};
use di_cache::{Key, WatchedJob};
use di_plan::{PodView, RandomSuffixes};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Api, ResourceExt,
    runtime::{controller::Action as Requeue, reflector::ObjectRef},
};
use rand::RngExt;
use tracing::{debug, instrument};

use crate::{
    Action, Error, EventRecord, Observed, ReconcileError, Step,
    apply::{ApplyError, PARALLEL_REQUESTS, apply_actions, created_object},
    context::Context,
    debounce::{DEBOUNCE, backed_by_persisted_status, debounce_write, is_persisted, is_up_to_date},
    error::Result,
    job_state::DeferredCreates,
    spec_check::fail_invalid_spec,
    status_writer::{replay_unacknowledged, write_status_and_emit},
    step,
    step::has_started,
    undecodable::fail_undecodable,
};

/// Each job is reconciled this often even without a change, in case a watch lost an event.
const RESYNC_PERIOD: Duration = Duration::from_secs(300);
/// Maximum number of steps in one reconcile: status, actions, status of their results. The watch
/// triggers further ones.
const MAX_ITERATIONS: usize = 6;

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
    let result: Result<_, ApplyError> = match &job.0 {
        Ok(_) => {
            wait_for_cache_sync(context).await?;
            reconcile_until_settled(context, &key, job.uid().as_deref()).await
        }
        Err(invalid) => {
            wait_for_cache_sync(context).await?;
            match fail_undecodable(context, invalid).await {
                Ok(Some(ended)) => clean_up_undecodable(context, &key, &ended).await,
                reported => reported
                    .map(|_| Requeue::await_change())
                    .map_err(ApplyError::from),
            }
        }
    };
    match &result {
        // With a pending status write, no request has shown that the API server works.
        Ok(_) if context.job_state(&key).is_settled() => context.backoff.record_success(&key),
        Err(ApplyError { error, .. }) if error.is_terminal() => {
            debug!(error = error.chain(), "Stopped reconciling the job");
            context.update_state(&key, |state| state.terminal = true);
            return Ok(Requeue::await_change());
        }
        Err(ApplyError { error, .. }) if error.is_conflict() => {}
        Err(failed) if job.0.is_ok() => record_error(context, &key, failed).await,
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

/// Observes, computes a step, writes the status and applies the actions, until nothing is left to
/// do for the job with this UID.
async fn reconcile_until_settled(
    context: &Context,
    key: &Key,
    uid: Option<&str>,
) -> Result<Requeue, ApplyError> {
    Box::pin(replay_unacknowledged(context, key)).await?;
    let mut last_error = context.job_state(key).last_error;
    let mut live_reads = HashMap::new();
    let (mut spec_checked, mut made_progress, mut no_effect) = (false, false, false);
    for _ in 0..MAX_ITERATIONS {
        let Some(job) = context.jobs.get(key) else {
            context.forget_job(key);
            return Ok(Requeue::await_change());
        };
        if job.metadata.uid.as_deref() != uid {
            // The job was recreated. Nothing that was observed applies to the new one.
            return Ok(Requeue::requeue(DEBOUNCE));
        }
        // Once in the life of a job, before anything is created. Inside the loop, because a job
        // may be resumed between two iterations. See docs/decisions/0013.
        if !spec_checked && is_new(context, key, &job) {
            if Box::pin(fail_invalid_spec(context, key)).await? {
                return Ok(Requeue::await_change());
            }
            spec_checked = true;
        }
        live_reads.extend(observed_deletions(context, &job).map(|name| (name, false)));
        let mut step = observe_and_step(context, key, &job, last_error.as_ref(), &live_reads);
        if !step.needs_live_read.is_empty() {
            let (results, failed) = verify_live(context, key, step.needs_live_read).await;
            // Successful reads are kept: a failing API server rejects some of many requests, so
            // reading all again might never succeed.
            if let Some(error) = failed.filter(|_| results.is_empty()) {
                return Err(error.into());
            }
            live_reads.extend(results);
            continue;
        }
        let has_deferred = defer_rejected_creates(context, key, &job, &mut step);
        let old = job.status.as_ref();
        let acts_first = !step.actions.is_empty() && is_persisted(old, &step.status);
        if !is_up_to_date(old, &step.status) && !acts_first {
            if let Some(wait) = debounce_write(context, key, old, &step) {
                let actions = backed_by_persisted_status(old, &step.status, step.actions);
                apply_actions(context, &job, key, &actions).await?;
                return Ok(Requeue::requeue(wait));
            }
            write_status_and_emit(context, key, &job, step).await?;
            made_progress = true;
            continue;
        }
        if step.actions.is_empty() && (last_error.is_none() || has_deferred) {
            context.update_state(key, |state| state.pending_write = None);
            return Ok(requeue_for(&step, &job));
        }
        let changed = apply_actions(context, &job, key, &step.actions).await?;
        made_progress |= changed;
        no_effect |= !changed;
        if step.actions.contains(&Action::DeleteJob) {
            // The cache shows the job until the watch catches up.
            context.update_state(key, |state| state.terminal = true);
            return Ok(Requeue::await_change());
        }
        if !has_deferred {
            last_error = None;
            context.update_state(key, |state| state.last_error = None);
        }
    }
    if no_effect && !made_progress {
        // Usually the watch soon delivers the missing change. The error adds a backoff, in case it
        // does not.
        return Err(Error::NoProgress.into());
    }
    // The job keeps changing. Other jobs are reconciled in between.
    Ok(Requeue::requeue(DEBOUNCE))
}

/// Cleans up after an ended job that cannot be decoded. Its status is not written, because a write
/// replaces all of it. See docs/decisions/0018.
async fn clean_up_undecodable(
    context: &Context,
    key: &Key,
    ended: &DIJob,
) -> Result<Requeue, ApplyError> {
    let step = observe_and_step(context, key, ended, None, &HashMap::new());
    apply_actions(context, ended, key, &step.actions).await?;
    Ok(requeue_for(&step, ended))
}

/// Removes the creates that the API server rejected from the step, until the backoff is over.
/// Returns true if it removed any.
fn defer_rejected_creates(context: &Context, key: &Key, job: &DIJob, step: &mut Step) -> bool {
    let deferred = context.job_state(key).deferred_creates;
    if deferred.objects.is_empty() {
        return false;
    }
    let delay = context.backoff.remaining_delay(key);
    // A new generation of the spec may have fixed the error, so it is tried at once.
    let Some(delay) = delay.filter(|_| deferred.generation == job.metadata.generation) else {
        context.update_state(key, |state| state.deferred_creates = Arc::default());
        return false;
    };
    let count = step.actions.len();
    remove_deferred(&mut step.actions, &deferred.objects);
    let has_deferred = step.actions.len() < count;
    if has_deferred {
        step.requeue_within(delay);
    } else {
        // The job does not desire these objects any more.
        context.update_state(key, |state| state.deferred_creates = Arc::default());
    }
    has_deferred
}

/// Removes deferred creates. If the coordinator is deferred, removes all creates of pods, which
/// could take its place in a quota.
fn remove_deferred(actions: &mut Vec<Action>, deferred: &HashSet<(&'static str, String)>) {
    let is_deferred =
        |action: &Action| created_object(action).is_some_and(|object| deferred.contains(&object));
    let coordinator_is_deferred = actions
        .iter()
        .any(|action| action.creates_coordinator() && is_deferred(action));
    let is_pod = |action: &Action| matches!(action, Action::CreatePod(_));
    actions.retain(|action| !(is_deferred(action) || coordinator_is_deferred && is_pod(action)));
}

/// Returns true if nothing was created for the job yet, and it is not suspended. Existing pods
/// prove the contrary even if the status was lost.
fn is_new(context: &Context, key: &Key, job: &DIJob) -> bool {
    let status = job.status.as_ref();
    job.metadata.deletion_timestamp.is_none()
        && !job.spec.suspend
        && status.is_none_or(|status| !has_started(status))
        && !context.has_pods(key, job.metadata.uid.as_deref())
}

/// Returns the replicas with a pod that the watch has reported as deleted.
fn observed_deletions(context: &Context, job: &DIJob) -> impl Iterator<Item = String> {
    let plan = job.status.iter().flat_map(|status| &status.plan);
    plan.filter(|entry| {
        entry
            .uid
            .as_ref()
            .is_some_and(|uid| context.pods.was_deleted(uid))
    })
    .map(|entry| entry.name.clone())
}

/// Reads pods from the API server, bypassing the cache. Returns each name with true if the pod
/// exists, and the first error.
async fn verify_live(
    context: &Context,
    key: &Key,
    names: Vec<String>,
) -> (Vec<(String, bool)>, Option<Error>) {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.0);
    let reads = names.into_iter().map(|name| {
        let api = api.clone();
        async move {
            let operation = || format!("get pods/{name}");
            let found = context.get("pods", operation, api.get_opt(&name)).await?;
            let view = found.as_ref().and_then(PodView::new);
            let exists = view.is_some();
            if let Some(view) = view {
                context.pods.record_created(view);
            }
            Ok((name, exists))
        }
        .boxed()
    });
    let reads: Vec<BoxFuture<'_, Result<_>>> = reads.collect();
    let results: Vec<_> = stream::iter(reads)
        .buffer_unordered(PARALLEL_REQUESTS)
        .collect()
        .await;
    let (mut found, mut failed) = (Vec::new(), None);
    for result in results {
        match result {
            Ok(read) => found.push(read),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    (found, failed)
}

/// Observes the cluster through the caches and computes the step.
fn observe_and_step(
    context: &Context,
    key: &Key,
    job: &DIJob,
    last_error: Option<&ReconcileError>,
    live_reads: &HashMap<String, bool>,
) -> Step {
    let pods = context.pods.list_by_job(key);
    let services = context.services.list_by_job(key);
    let nodes = context.nodes.list_all();
    let aggregator = context.aggregators.template_for(&key.0);
    let now = (context.settings.clock)();
    let coordinator = job.status.as_ref().map(|status| &status.coordinator);
    let coordinator_uid = coordinator.and_then(|last| last.uid.as_deref());
    let final_coordinator_state = coordinator_uid.and_then(|uid| context.pods.final_state(uid));
    let observed = Observed {
        job,
        pods: &pods,
        services: &services,
        nodes: nodes.as_deref(),
        aggregator: &aggregator,
        last_error,
        final_coordinator_state: final_coordinator_state.as_ref(),
        live_reads,
        // Times in Kubernetes objects are whole seconds.
        now: Timestamp::from_second(now.as_second()).unwrap_or(now),
    };
    step(&observed, &mut RandomSuffixes)
}

/// Returns the time of the next reconcile. An ended job needs no resync.
fn requeue_for(step: &Step, job: &DIJob) -> Requeue {
    let ended = job.status.as_ref().is_some_and(DIJobStatus::has_ended);
    // Jitter spreads the resyncs of jobs that were listed together.
    let resync = RESYNC_PERIOD.mul_f64(rand::rng().random_range(0.8..1.2));
    match step.requeue_after {
        Some(delay) if ended => Requeue::requeue(delay),
        None if ended => Requeue::await_change(),
        delay => Requeue::requeue(delay.map_or(resync, |delay| delay.min(resync))),
    }
}

/// Reduces a step to the reason and the condition `ReplicasReady` of the status.
pub(crate) fn conditions_only(step: Step, job: &DIJob) -> Step {
    let DIJobStatus {
        reason, conditions, ..
    } = step.status;
    let is_ready_condition =
        |condition: &Condition| condition.type_ == ConditionType::ReplicasReady.as_str();
    let mut status = job.status.clone().unwrap_or_default();
    status.reason = reason;
    status
        .conditions
        .retain(|condition| !is_ready_condition(condition));
    status
        .conditions
        .extend(conditions.into_iter().filter(is_ready_condition));
    Step {
        status,
        ..Step::default()
    }
}

/// Keeps reporting the same error while its object is still rejected, even if a retry fails for a
/// different object. Reports the next error once the object is created.
fn stable_error(
    reported: Option<ReconcileError>,
    new: ReconcileError,
    deferred: &DeferredCreates,
) -> ReconcileError {
    let still_holds = |old: &ReconcileError| {
        let object = old.deferred_create.as_ref();
        let is_deferred = object.is_some_and(|object| deferred.objects.contains(object));
        is_deferred && old.deferred_create != new.deferred_create && old.reason == new.reason
    };
    reported.filter(still_holds).unwrap_or(new)
}

/// Records an error in the state of the job, queues an event, and reports it in the status.
async fn record_error(context: &Context, key: &Key, failed: &ApplyError) {
    let error = &failed.error;
    let new_error = ReconcileError {
        reason: error.reason(),
        message: error.chain(),
        deferred_create: failed.deferred_create.clone(),
    };
    let state = context.job_state(key);
    let last_error = stable_error(state.last_error, new_error, &state.deferred_creates);
    let object = last_error.deferred_create.as_ref();
    let resource = object.map(|(resource, _)| *resource);
    let event = EventRecord {
        warning: !error.is_transient(),
        series_key: resource.or(Some("dijobs")),
        ..EventRecord::normal(last_error.reason, last_error.message.clone())
    };
    context.update_state(key, |state| state.last_error = Some(last_error));
    let Some(job) = context.jobs.get(key) else {
        return;
    };
    context.queue_event(&job, &event);
    let state = context.job_state(key);
    if state.unacknowledged.is_some() {
        // Another write would hide whether the unacknowledged one succeeded.
        return;
    }
    let last_error = state.last_error;
    let mut step = observe_and_step(context, key, &job, last_error.as_ref(), &HashMap::new());
    // Write no plan from an unverified cache: it may contain new names. Also not for a new job
    // with an unchecked spec: once it has begun, the spec is not checked again.
    if !step.needs_live_read.is_empty() || is_new(context, key, &job) {
        step = conditions_only(step, &job);
    }
    if !is_up_to_date(job.status.as_ref(), &step.status)
        && let Err(error) = write_status_and_emit(context, key, &job, step).await
    {
        debug!(
            error = error.chain(),
            "Cannot write the error to the status, retrying with the next reconcile"
        );
    }
}

#[cfg(test)]
mod tests;
