//! Reports the errors of a reconcile: in the state of the job, its status, and an event.

use std::sync::Arc;

use di_api::{ConditionType, DIJob};
use di_cache::{JobRef, Key};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use tracing::debug;

use crate::{
    Error, EventRecord, ReconcileError, Result, Step,
    apply::Applied,
    context::Context,
    deferred_creates::DeferredCreates,
    observe::{compute, observe},
    status_change::StatusChange,
    status_writer::{compare_status, write_status_and_emit},
    step::waits_for_admission,
};

/// Error of a reconcile.
#[derive(Debug)]
pub(crate) struct Failure {
    pub error: Error,
    /// Resource and name of the object, if its create was deferred.
    pub deferred_create: Option<(&'static str, String)>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            error,
            deferred_create: None,
        }
    }
}

/// Defers failed and skipped creates. Returns the most severe error of the actions, else whether
/// anything was changed.
pub(crate) fn record_results(
    context: &Context,
    key: &Key,
    job: &DIJob,
    applied: Applied<'_>,
) -> Result<bool, Failure> {
    let has_changed = applied.has_changed();
    if has_changed {
        context.backoff.reset_failures(key);
    }
    let (mut failures, mut deferred) = (Vec::new(), Vec::new());
    for (action, result) in applied.0 {
        match result {
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                let deferred_create = action.created_object().filter(|_| !error.is_transient());
                deferred.extend(deferred_create.clone());
                failures.push(Failure {
                    error,
                    deferred_create,
                });
            }
            None => deferred.extend(action.created_object()),
        }
    }
    if !deferred.is_empty() {
        context.update_state(key, |state| {
            let known = Arc::make_mut(&mut state.deferred_creates);
            known.add(deferred, job.metadata.generation);
        });
    }
    let reported = job.status.as_ref().and_then(|s| s.reason.as_deref());
    let last_error = context.job_state(key).last_error;
    let last_create = last_error.and_then(|error| error.deferred_create);
    most_severe(failures, reported, last_create.as_ref()).map_or(Ok(has_changed), Err)
}

/// Returns the error to report in the status. Prefers the error that is already reported: a
/// different one causes a status write and another try.
fn most_severe(
    failures: Vec<Failure>,
    reported_reason: Option<&str>,
    reported_create: Option<&(&'static str, String)>,
) -> Option<Failure> {
    failures.into_iter().min_by_key(|failed| {
        let reason = failed.error.reason();
        let rank = Error::REASONS.iter().position(|other| *other == reason);
        (
            !failed.error.is_terminal(),
            reported_reason != Some(reason.as_str()),
            rank,
            failed.deferred_create.as_ref() != reported_create,
        )
    })
}

/// Records an error in the state of the job, queues an event, and reports it in the status.
pub(crate) async fn report_error(context: &Context, key: &Key, failed: &Failure) {
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
    // Another write would hide whether an unacknowledged one succeeded.
    if state.unacknowledged.is_none()
        && let Err(error) = write_report(context, key, job).await
    {
        debug!(
            error = error.chain(),
            "Cannot write the error to the status, retrying with the next reconcile"
        );
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
        let is_deferred = object.is_some_and(|object| deferred.contains(object));
        is_deferred && old.deferred_create != new.deferred_create && old.reason == new.reason
    };
    reported.filter(still_holds).unwrap_or(new)
}

/// Writes the status with the recorded error, if it differs from the stored one.
async fn write_report(context: &Context, key: &Key, job: JobRef) -> Result<()> {
    let is_new = context.is_new(key, &job);
    let observed = observe(context, key, job);
    let (job, mut step) = (&observed.job, compute(&observed));
    // Write no plan from an unverified cache: it may contain new names. Also not for a new job
    // with an unchecked spec: once it has begun, the spec is not checked again.
    if step.needs_reads() || is_new {
        step = conditions_only(step, job);
    }
    if compare_status(context, key, job, &step) != StatusChange::None {
        write_status_and_emit(context, key, job, step).await?;
    }
    Ok(())
}

/// Reduces a step to the reason and the condition `ReplicasReady` of the status. Of a job that
/// waits for its admission, also to the condition `Admitted`.
pub(crate) fn conditions_only(step: Step, job: &DIJob) -> Step {
    let mut status = job.status.clone().unwrap_or_default();
    let still_waits =
        waits_for_admission(&status.conditions) && waits_for_admission(&step.status.conditions);
    let is_reported = |condition: &Condition| {
        let type_ = condition.type_.as_str();
        type_ == ConditionType::ReplicasReady.as_str()
            || still_waits && type_ == ConditionType::Admitted.as_str()
    };
    let reported = step.status.conditions.into_iter().filter(is_reported);
    status
        .conditions
        .retain(|condition| !is_reported(condition));
    status.conditions.extend(reported);
    status.reason = step.status.reason;
    Step {
        status,
        ..Step::default()
    }
}

#[cfg(test)]
mod tests {
    use di_api::{DIJobStatus, Reason, set_condition};
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn conflict(resource: &'static str, message: &str) -> ReconcileError {
        ReconcileError {
            reason: Reason::NameConflict,
            message: message.to_owned(),
            deferred_create: Some((resource, "j-coordinator".to_owned())),
        }
    }

    #[test]
    fn reported_error_stays_until_its_object_is_created() {
        let (pod, service) = (
            || conflict("pods", "pod"),
            || conflict("services", "service"),
        );
        let late = || ReconcileError {
            reason: Reason::Timeout,
            message: "late".to_owned(),
            deferred_create: None,
        };
        let (pods, services): (&[_], &[_]) = (&["pods"], &["services"]);
        let both: &[_] = &["pods", "services"];
        for (reported, new, resources, expected) in [
            (None, service(), both, "service"),
            (Some(pod()), service(), both, "pod"),
            (Some(pod()), service(), services, "service"),
            (Some(pod()), conflict("pods", "same pod"), pods, "same pod"),
            (Some(pod()), late(), pods, "late"),
            (Some(late()), pod(), pods, "pod"),
        ] {
            let mut deferred = DeferredCreates::default();
            let named = |resource: &&'static str| (*resource, "j-coordinator".to_owned());
            deferred.add(resources.iter().map(named), None);
            let error = stable_error(reported, new, &deferred);
            assert_eq!(error.message, expected, "{deferred:?}");
        }
    }

    #[test]
    fn unverified_step_changes_only_the_reason_of_a_wait() {
        let status_with = |is_admitted: bool, reason: Reason| {
            let mut status = DIJobStatus::default();
            let (type_, now) = (ConditionType::Admitted, Time(Timestamp::UNIX_EPOCH));
            set_condition(
                &mut status.conditions,
                type_,
                is_admitted,
                reason,
                "",
                None,
                &now,
            );
            status
        };
        let waiting = || status_with(false, Reason::QueueWaiting);
        let forbidden = || status_with(false, Reason::QueueForbidden);
        let admitted = || status_with(true, Reason::QueueAdmitted);
        for (old, new, expected) in [
            (waiting(), forbidden(), forbidden()),
            (waiting(), admitted(), waiting()),
            (admitted(), forbidden(), admitted()),
        ] {
            let mut job: DIJob = di_fixtures::Job::test().build();
            job.status = Some(old);
            let step = Step {
                status: new,
                ..Step::default()
            };
            assert_eq!(conditions_only(step, &job).status, expected);
        }
    }

    #[test]
    fn most_severe_error_is_reported_until_it_is_solved() {
        let conflict = || Error::NameConflict {
            kind: "pod",
            name: "p".to_owned(),
        };
        let timeout = || Error::Timeout {
            operation: "try".to_owned(),
            seconds: 10,
        };
        let reported = |errors: Vec<Error>, before| {
            let errors = errors.into_iter().map(Failure::from).collect();
            most_severe(errors, before, None).map(|failed| failed.error.reason())
        };
        let quota = Some("QuotaExceeded");
        for (errors, before, expected) in [
            (vec![], None, None),
            (
                vec![timeout(), conflict()],
                None,
                Some(Reason::NameConflict),
            ),
            (
                vec![conflict(), timeout()],
                None,
                Some(Reason::NameConflict),
            ),
            (
                vec![conflict(), timeout()],
                Some("Timeout"),
                Some(Reason::Timeout),
            ),
            (
                vec![timeout(), conflict()],
                Some("Timeout"),
                Some(Reason::Timeout),
            ),
            (
                vec![timeout(), conflict()],
                quota,
                Some(Reason::NameConflict),
            ),
        ] {
            assert_eq!(reported(errors, before), expected, "{before:?}");
        }
    }

    #[test]
    fn reported_object_is_preferred_among_equal_errors() {
        let failed = |resource, name: &str| Failure {
            error: Error::Timeout {
                operation: "try".to_owned(),
                seconds: 10,
            },
            deferred_create: Some((resource, name.to_owned())),
        };
        let all = || {
            vec![
                failed("pods", "a"),
                failed("pods", "b"),
                failed("services", "b"),
            ]
        };
        for object in [("pods", "a"), ("pods", "b"), ("services", "b")] {
            let object = (object.0, object.1.to_owned());
            let reported = most_severe(all(), Some("Timeout"), Some(&object))
                .and_then(|failed| failed.deferred_create);
            assert_eq!(reported, Some(object));
        }
    }
}
