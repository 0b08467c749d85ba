//! Writes the status as a whole, guarded by `resourceVersion`, and queues the events of the step
//! after the write. See docs/decisions/0003.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use di_api::{DIJob, DIJobStatus};
use di_cache::{JobRef, Key};
use kube::Api;

use crate::{
    Action, Error, Step,
    context::Context,
    error::Result,
    status_change::{StatusChange, equals_without_membership},
    undecodable::EndedJob,
};

/// From this number of entries on, a plan is large.
const LARGE_PLAN_ENTRIES: usize = 500;

/// A job whose stored status backs the actions of a step. Only this file can make one, so no
/// action is applied before the status that it follows from is stored.
pub(crate) struct Persisted {
    /// The job as stored.
    pub job: JobRef,
    actions: Vec<Action>,
    /// Whether the step wrote the status.
    pub write: StatusWrite,
    /// Delay of the next reconcile if nothing changes.
    pub requeue_after: Option<Duration>,
}

/// When a reconcile writes the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusWrite {
    /// Not now: the stored status backs the actions.
    Skipped,
    /// Now.
    Due,
    /// After this delay. Until then there are no actions.
    Debounced(Duration),
}

impl Persisted {
    /// The actions of a job whose end is already stored.
    pub fn of_ended_job(job: EndedJob, step: Step) -> Self {
        Self {
            job: job.into(),
            actions: step.actions,
            write: StatusWrite::Skipped,
            requeue_after: step.requeue_after,
        }
    }

    /// The actions of a step, as if its status were stored.
    #[cfg(test)]
    pub fn for_test(job: JobRef, step: Step) -> Self {
        Self {
            job,
            actions: step.actions,
            write: StatusWrite::Skipped,
            requeue_after: None,
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
    let write = schedule_write(context, key, job, &step);
    let requeue_after = step.requeue_after;
    let actions = std::mem::take(&mut step.actions);
    let (job, actions) = match write {
        StatusWrite::Skipped => (job.clone(), actions),
        StatusWrite::Due => {
            let written = write_status_and_emit(context, key, job, step).await?;
            (written, actions)
        }
        StatusWrite::Debounced(_) => (job.clone(), Vec::new()),
    };
    Ok(Persisted {
        job,
        actions,
        write,
        requeue_after,
    })
}

/// Compares the status of a step with the stored one. The membership alone is no difference if an
/// older CRD has no field for it: each reconcile would write it again.
pub(crate) fn compare_status(
    context: &Context,
    key: &Key,
    job: &DIJob,
    step: &Step,
) -> StatusChange {
    let old = job.status.as_ref();
    let is_same = |old: &DIJobStatus| equals_without_membership(old, &step.status);
    if context.job_state(key).drops_membership && old.is_some_and(is_same) {
        return StatusChange::None;
    }
    StatusChange::between(old, step)
}

fn schedule_write(context: &Context, key: &Key, job: &JobRef, step: &Step) -> StatusWrite {
    let change = compare_status(context, key, job, step);
    let is_large_plan = step.status.plan.len() > LARGE_PLAN_ENTRIES;
    let mut write = StatusWrite::Skipped;
    context.update_state(key, |state| match change {
        StatusChange::None => state.write_schedule.clear(),
        StatusChange::CountsOnly => {}
        _ => {
            let schedule = &mut state.write_schedule;
            let delay = schedule.delay(change, is_large_plan, Instant::now());
            write = delay.map_or(StatusWrite::Due, StatusWrite::Debounced);
        }
    });
    write
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
                if has_membership(&step.status) {
                    state.drops_membership = !written.status.as_ref().is_some_and(has_membership);
                }
            });
            emit(context, job, &step);
            Ok(context.jobs.record_write(written))
        }
        Err(error) => {
            if error.outcome_unknown() {
                let unacknowledged = Arc::new(step);
                context.update_state(key, |state| state.unacknowledged = Some(unacknowledged));
            }
            Err(error)
        }
    }
}

fn has_membership(status: &DIJobStatus) -> bool {
    status.membership_generation.is_some()
}

/// Queues the events of a written step, and counts its failures.
fn emit(context: &Context, job: &DIJob, step: &Step) {
    context.queue_events(job, &step.events);
    context.metrics.count_failures(&step.failures);
}

/// Reads the job after a status write without response. If the write succeeded, emits its
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
    if let Some(job) = job {
        if job.status.as_ref() == Some(&unacknowledged.status) {
            emit(context, &job, &unacknowledged);
        }
        context.jobs.record_write(job);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use di_fixtures::{ApiServerMock, Job, Reply};
    use serde_json::json;

    use super::*;
    use crate::observe::{compute, observe};

    /// A mock of an API server that stores a job by an older CRD.
    fn older_server(job: Job) -> (ApiServerMock, Context, DIJob) {
        let mut stored = job.metadata(json!({"resourceVersion": "1"})).json();
        let job = serde_json::from_value(stored.clone()).unwrap();
        let (mock, client) = ApiServerMock::new(move |request| {
            // The first operation guards the version.
            stored["status"] = request.body[1]["value"].clone();
            let status = stored["status"].as_object_mut().unwrap();
            status.remove("membershipGeneration");
            stored["metadata"]["resourceVersion"] = "2".into();
            Reply::Object(200, stored.clone())
        });
        (mock, Context::test(client), job)
    }

    fn key() -> Key {
        ("rl".to_owned(), "j".to_owned())
    }

    fn next_step(context: &Context, job: &JobRef) -> Step {
        compute(&observe(context, &key(), job.clone()))
    }

    #[tokio::test]
    async fn membership_that_server_drops_is_written_once() {
        let (mock, context, job) = older_server(Job::test().suspended());
        let step = next_step(&context, &job.clone().into());
        assert!(has_membership(&step.status));
        let written = write_status_and_emit(&context, &key(), &job, step).await;
        let written = written.unwrap();
        assert!(!has_membership(written.status.as_ref().unwrap()));
        let step = next_step(&context, &written);
        let change = StatusChange::between(written.status.as_ref(), &step);
        assert_eq!(change, StatusChange::Minor, "it would be written again");
        let next = write_status(&context, &key(), &written, step).await;
        assert_eq!(next.unwrap().write, StatusWrite::Skipped);
        assert_eq!(mock.requests().len(), 1);

        // Another change is written, with the membership: the CRD may be newer by then.
        let mut step = next_step(&context, &written);
        step.status.restarts = 1;
        let change = compare_status(&context, &key(), &written, &step);
        assert_eq!(change, StatusChange::Urgent);
    }
}
