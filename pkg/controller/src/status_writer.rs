//! Writes the status as a whole, guarded by `resourceVersion`, and queues the events of the step
//! after the write. See docs/decisions/0003.

use std::{sync::Arc, time::Instant};

use di_api::{DIJob, DIJobStatus};
use di_cache::Key;
use kube::Api;

use crate::{Error, EventRecord, Step, context::Context, error::Result};

/// Writes the whole status, guarded by the `resourceVersion` of the job it was computed from.
async fn write_status(
    context: &Context,
    key: &Key,
    job: &DIJob,
    status: DIJobStatus,
) -> Result<()> {
    let whole = (vec!["status".to_owned()], serde_json::json!(status));
    let call = di_cache::write_fields(&context.client, job, Some("status"), [whole]);
    let operation = || format!("write status of DIJob {}/{}", key.0, key.1);
    let written = context
        .write("patch", "dijobs/status", operation, call)
        .await;
    let written = written.map_err(Error::map_job_not_found)?;
    context.jobs.record_write(written);
    context.update_state(key, |state| {
        state.pending_write = None;
        state.last_write = Some(Instant::now());
    });
    Ok(())
}

/// Writes the status, then queues the events of the step.
pub(crate) async fn write_status_and_emit(
    context: &Context,
    key: &Key,
    job: &DIJob,
    step: Step,
) -> Result<()> {
    let sent = step.status.clone();
    let written = write_status(context, key, job, step.status).await;
    match &written {
        Ok(()) => queue_events(context, job, &step.events),
        Err(error) if error.outcome_unknown() => {
            let unacknowledged = Arc::new((sent, step.events));
            context.update_state(key, |state| state.unacknowledged = Some(unacknowledged));
        }
        Err(_) => {}
    }
    written
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
            queue_events(context, &job, events);
        }
        context.jobs.record_write(job);
    }
    Ok(())
}

fn queue_events(context: &Context, job: &DIJob, events: &[EventRecord]) {
    for event in events {
        context.queue_event(job, event);
    }
}
