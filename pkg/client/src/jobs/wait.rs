use std::slice;

use futures::StreamExt;
use kube::core::Status;
use serde_json::json;

use crate::{Cluster, Deadline, Error, Job, JobEvent, JobQuery, Result, list_jobs, watch_jobs};

use super::job::api_resource;

/// The state of an awaited condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitState {
    /// The condition is met.
    Met,
    /// The condition may still be met.
    Pending,
    /// The condition cannot be met any more. Contains the reason.
    Impossible(String),
}

/// Watches a job until `check` is met.
///
/// # Errors
/// [`Error::Timeout`] with the text of `describe` for the last observed job,
/// [`Error::NeverReached`] with
/// the reason of `check`.
pub async fn wait_for_job(
    cluster: &Cluster,
    name: &str,
    deadline: Deadline,
    mut check: impl FnMut(&Job) -> WaitState,
    describe: impl Fn(&Job) -> String,
) -> Result<Job> {
    let query = JobQuery {
        name: Some(name.to_owned()),
        ..JobQuery::default()
    };
    // With a timeout of zero the job is still read once.
    let mut timeout = std::pin::pin!(deadline.wait_passed());
    let list = tokio::select! {
        list = list_jobs(cluster, &query) => list?,
        () = &mut timeout, if !deadline.check_once => {
            let unknown = json!({"metadata": {"name": name}});
            return Err(Error::Timeout(describe(&unknown.into())));
        }
    };
    let mut seen = list
        .jobs
        .into_iter()
        .next()
        .ok_or_else(|| not_found_error(name))?;
    let known = slice::from_ref(&seen);
    let mut events = watch_jobs(cluster, &query, &list.resource_version, known);
    loop {
        match check(&seen) {
            WaitState::Met => return Ok(seen),
            WaitState::Impossible(reason) => return Err(Error::NeverReached(reason)),
            WaitState::Pending => {}
        }
        let event = tokio::select! {
            event = events.next() => event,
            () = &mut timeout => return Err(Error::Timeout(describe(&seen))),
        };
        match event {
            Some(Ok(JobEvent::Applied(job))) => seen = job,
            Some(Ok(JobEvent::Deleted(_))) | None => return Err(not_found_error(name)),
            Some(Err(error)) => return Err(error),
        }
    }
}

/// Describes what a wait has waited for, such as `phase Running`, with what the job has instead.
pub fn describe_wait(awaited: &str) -> impl Fn(&Job) -> String {
    move |job| format!("{awaited} of {}", describe_state(job))
}

/// Describes a job that has not met a condition: its name, with its problem or its phase.
pub fn describe_state(job: &Job) -> String {
    let name = job.resource_name();
    let phase = || Some(format!("its phase is {}", job.status.phase?.as_str()));
    match job.problem_summary().or_else(phase) {
        Some(found) => format!("{name} ({found})"),
        None => name,
    }
}

/// The error of the API server for a missing job.
fn not_found_error(name: &str) -> Error {
    let plural = format!("{}.{}", api_resource().plural, di_api::names::GROUP);
    let status = Status::failure(&format!("{plural} {name:?} not found"), "NotFound");
    Error::Server(status.with_code(404).boxed())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use di_fixtures::{ApiServerMock, Reply};

    use super::*;

    #[tokio::test]
    async fn unresponsive_server_times_out() {
        let cluster = Cluster::for_test_client(ApiServerMock::client(|_| Reply::Hang));
        let deadline = Deadline::after(Some(Duration::from_millis(50)));
        let check = |_: &Job| WaitState::Met;
        let met = wait_for_job(&cluster, "j", deadline, check, Job::resource_name).await;
        let error = met.unwrap_err().to_string();
        assert_eq!(error, "timed out waiting for dijobs/j");
    }
}
