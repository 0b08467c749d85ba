//! Applies the actions of a step: creates and deletes pods and services.

mod groups;
mod objects;
mod precondition;
mod requests;
mod slow_start;
mod workloads;

use std::sync::atomic::{AtomicBool, Ordering};

use di_api::Reason;
use di_cache::Key;
use di_plan::PodBuilder;
use futures::{FutureExt, future::join_all};
use rand::seq::SliceRandom;
use tokio::sync::Semaphore;

use crate::{
    Action, Error, EventRecord, context::Context, error::Result, status_writer::Persisted,
    step::join_names,
};
use precondition::is_still_desired;
use requests::send_action;
use slow_start::{batches, group_similar, stops_similar};

/// Maximum number of concurrent requests for one job.
pub(crate) const PARALLEL_REQUESTS: usize = 16;

/// An action, and whether it changed anything. `None` if it was skipped, because it is expected to
/// fail.
type ActionResult<'a> = (&'a Action, Option<Result<bool>>);

/// Results of all actions.
pub(crate) struct Applied<'a>(pub Vec<ActionResult<'a>>);

impl Applied<'_> {
    /// Returns true if any action changed the cluster.
    pub fn has_changed(&self) -> bool {
        let has_changed = |(_, result): &ActionResult<'_>| matches!(result, Some(Ok(true)));
        self.0.iter().any(has_changed)
    }

    /// Returns one event for all created pods, one for all deleted pods, and one for all created
    /// Workloads.
    pub fn events(&self) -> Vec<EventRecord> {
        let (mut created, mut deleted, mut queued) = (Vec::new(), Vec::new(), Vec::new());
        for result in &self.0 {
            match result {
                (Action::CreatePod(entry), Some(Ok(true))) => {
                    created.push((entry.role, entry.name.as_str()));
                }
                (Action::DeletePod { name, .. }, Some(Ok(true))) => deleted.push(name.as_str()),
                (Action::CreateWorkload(draft), Some(Ok(true))) => queued.push(draft.name.as_str()),
                _ => {}
            }
        }
        // Sorted by role, the coordinator first.
        created.sort_unstable();
        deleted.sort_unstable();
        queued.sort_unstable();
        let created = created.into_iter().map(|(_, name)| name).collect();
        [
            (Reason::SuccessfulCreate, "created", created),
            (Reason::SuccessfulDelete, "deleted", deleted),
            (Reason::QueueWaiting, "created Workload", queued),
        ]
        .into_iter()
        .filter(|(_, _, names): &(_, _, Vec<_>)| !names.is_empty())
        .map(|(reason, verb, names)| {
            EventRecord::normal(reason, format!("{verb} {}", join_names(&names)))
        })
        .collect()
    }
}

/// Applies all actions. A failed action stops only [similar](slow_start) ones.
pub(crate) async fn apply_actions<'a>(
    context: &Context,
    key: &Key,
    persisted: &'a Persisted,
) -> Applied<'a> {
    let actions = persisted.actions().iter();
    // The coordinator comes first: without it no other pod is useful, so it must get the last
    // free place in a quota.
    let (coordinator, others): (Vec<_>, Vec<_>) =
        actions.partition(|action| action.creates_coordinator());
    // Pods come before services: a pod takes time to start, and until then no client needs its
    // address.
    let (services, mut others): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|action| matches!(action, Action::CreateService(_)));
    let aggregator = context.aggregators.template_for(&key.0);
    let build = &context.settings.build;
    let sender = Sender {
        context,
        key,
        persisted,
        pods: PodBuilder::new(&persisted.job, aggregator.pod_template(), build),
        has_failed: context.backoff.has_failed(key),
        permits: Semaphore::new(PARALLEL_REQUESTS),
    };
    let mut results = sender.send_all(coordinator).await;
    if let Some((_, Some(Err(error)))) = results.first() {
        let is_transient = error.is_transient();
        let (pods, rest): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|action| matches!(action, Action::CreatePod(_)));
        others = rest;
        // A transient error disappears, so the pods are not deferred.
        if !is_transient {
            results.extend(pods.into_iter().map(|pod| (pod, None)));
        }
    }
    results.extend(sender.send_all(others).await);
    results.extend(sender.send_all(services).await);
    Applied(results)
}

/// Sends the actions of one job.
struct Sender<'a> {
    context: &'a Context,
    key: &'a Key,
    persisted: &'a Persisted,
    pods: PodBuilder<'a>,
    /// True if the last reconcile of the job failed.
    has_failed: bool,
    permits: Semaphore,
}

impl Sender<'_> {
    /// Sends groups of similar actions at the same time.
    async fn send_all<'b>(&self, actions: Vec<&'b Action>) -> Vec<ActionResult<'b>> {
        // Boxed, because the compiler cannot prove that futures of a closure over borrows are
        // `Send`.
        let groups = group_similar(actions).into_iter();
        let groups = groups.map(|group| self.send_group(group).boxed());
        join_all(groups).await.into_iter().flatten().collect()
    }

    /// Sends similar actions in batches, until one fails in a way that all would.
    async fn send_group<'b>(&self, mut group: Vec<&'b Action>) -> Vec<ActionResult<'b>> {
        if self.has_failed {
            // In random order, as an object that always fails must not block the others.
            group.shuffle(&mut rand::rng());
        }
        let is_stopped = AtomicBool::new(false);
        let mut results = Vec::with_capacity(group.len());
        for batch in batches(&group, self.has_failed) {
            let sent = batch.iter().map(|action| {
                let result = self.send(action, &is_stopped);
                async move { (*action, result.await) }.boxed()
            });
            results.extend(join_all(sent).await);
        }
        results
    }

    /// Sends an action if the job still desires it. Returns `None` if a similar one has failed.
    async fn send(&self, action: &Action, is_stopped: &AtomicBool) -> Option<Result<bool>> {
        let (context, job) = (self.context, &self.persisted.job);
        // The semaphore is never closed, so `acquire` never fails.
        let _permit = self.permits.acquire().await.ok();
        let newest = context.jobs.get(self.key);
        if !is_still_desired(action, job, newest.as_deref()) {
            return Some(Ok(false));
        }
        if is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        let result = send_action(context, &self.pods, job, self.key, action).await;
        if result.as_ref().is_err_and(Error::is_kind_not_served) {
            if action.is_for_workload() {
                context.workloads.report_missing();
            } else if action.is_for_group() {
                context.groups.report_missing();
            }
        }
        let stops = |error: &Error| stops_similar(action, error);
        if result.as_ref().is_err_and(stops) {
            is_stopped.store(true, Ordering::Relaxed);
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests;
