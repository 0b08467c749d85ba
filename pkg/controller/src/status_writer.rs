//! Writes the status as a whole, guarded by `resourceVersion`, and queues the events of the step
//! after the write. See docs/decisions/0003.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use di_api::DIJob;
use di_cache::{JobRef, Key};
use kube::Api;

use crate::{Action, Error, Step, context::Context, error::Result, status_change::StatusChange};

/// From this number of entries on, a plan is large.
const LARGE_PLAN_ENTRIES: usize = 500;

/// A job whose stored status backs the actions of a step. Only this file can make one, so no
/// action is applied before the status that it follows from is stored.
pub(crate) struct Persisted {
    /// The job as stored.
    pub job: JobRef,
    actions: Vec<Action>,
    /// True if the status was written.
    pub is_written: bool,
    /// Rest of the delay of a debounced write. Until then there are no actions.
    pub debounced: Option<Duration>,
    /// Delay of the next reconcile if nothing changes.
    pub requeue_after: Option<Duration>,
}

impl Persisted {
    /// The actions of an ended job. Its end is already stored.
    pub fn of_ended_job(job: JobRef, step: Step) -> Self {
        Self {
            job,
            actions: step.actions,
            is_written: false,
            debounced: None,
            requeue_after: step.requeue_after,
        }
    }

    pub fn actions(&self) -> &[Action] {
        &self.actions
    }
}

/// Writes the status of the step if it differs from the stored one, and the write is due.
pub(crate) async fn write_status(
    context: &Context,
    key: &Key,
    job: &JobRef,
    mut step: Step,
) -> Result<Persisted> {
    let change = StatusChange::between(job.status.as_ref(), &step);
    let is_large_plan = step.status.plan.len() > LARGE_PLAN_ENTRIES;
    let mut persisted = Persisted {
        job: job.clone(),
        actions: std::mem::take(&mut step.actions),
        is_written: false,
        debounced: None,
        requeue_after: step.requeue_after,
    };
    context.update_state(key, |state| match change {
        StatusChange::None => state.write_schedule.clear(),
        StatusChange::CountsOnly => {}
        _ => {
            let schedule = &mut state.write_schedule;
            persisted.debounced = schedule.delay(change, is_large_plan, Instant::now());
            persisted.is_written = persisted.debounced.is_none();
        }
    });
    if persisted.is_written {
        persisted.job = write_status_and_emit(context, key, job, step).await?;
    } else if persisted.debounced.is_some() {
        persisted.actions.clear();
    }
    Ok(persisted)
}

/// Writes the whole status, guarded by the `resourceVersion` of the job that it was computed from,
/// then queues the events of the step: the next step would not find them again.
pub(crate) async fn write_status_and_emit(
    context: &Context,
    key: &Key,
    job: &DIJob,
    step: Step,
) -> Result<JobRef> {
    let whole = (vec!["status".to_owned()], serde_json::json!(step.status));
    let call = di_cache::write_fields(&context.client, job, Some("status"), [whole]);
    let operation = || format!("write status of DIJob {}/{}", key.0, key.1);
    let written = context
        .write("patch", "dijobs/status", operation, call)
        .await;
    match written.map_err(Error::map_job_not_found) {
        Ok(written) => {
            context.update_state(key, |state| {
                state.write_schedule.record_write(Instant::now());
            });
            context.queue_events(job, &step.events);
            Ok(context.jobs.record_write(written))
        }
        Err(error) => {
            if error.outcome_unknown() {
                let unacknowledged = Arc::new((step.status, step.events));
                context.update_state(key, |state| state.unacknowledged = Some(unacknowledged));
            }
            Err(error)
        }
    }
}

/// Reads the job after a status write without response. If the write succeeded, queues its
/// events: the next step would not find them again. In any case it updates the cache, as no step
/// may start from the old job.
pub(crate) async fn replay_unacknowledged(context: &Context, key: &Key) -> Result<()> {
    let Some(unacknowledged) = context.job_state(key).unacknowledged else {
        return Ok(());
    };
    let api: Api<DIJob> = Api::namespaced(context.client.clone(), &key.0);
    let operation = || format!("get DIJob {}/{}", key.0, key.1);
    let job = context
        .get("dijobs", operation, api.get_opt(&key.1))
        .await?;
    context.update_state(key, |state| state.unacknowledged = None);
    let (status, events) = &*unacknowledged;
    if let Some(job) = job {
        if job.status.as_ref() == Some(status) {
            context.queue_events(&job, events);
        }
        context.jobs.record_write(job);
    }
    Ok(())
}
