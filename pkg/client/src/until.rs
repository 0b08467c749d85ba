use std::{future::pending, slice, time::Duration};

use futures::StreamExt;
use kube::core::Status;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use crate::{Cluster, Error, Job, JobEvent, JobQuery, Result, jobs, watch_jobs};

/// What a look at a job tells of what is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It is there.
    Met,
    /// It may come.
    Open,
    /// It cannot come any more, and why.
    Never(String),
}

/// When to give up.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Option<Instant>,
    only_a_look: bool,
}

impl Deadline {
    /// After this time; none means never, and nothing at all means after one look.
    pub fn after(time: Option<Duration>) -> Self {
        Self {
            at: time.and_then(|time| Instant::now().checked_add(time)),
            only_a_look: time.is_some_and(|time| time.is_zero()),
        }
    }

    pub(crate) async fn passed(self) {
        match self.at {
            Some(at) => sleep_until(at).await,
            None => pending().await,
        }
    }

    /// Whether it is over after a pause as long as this.
    pub fn comes_within(self, pause: Duration) -> bool {
        self.at.is_some_and(|at| Instant::now() + pause >= at)
    }
}

/// Looks at a job at each change of it until `look` finds what is waited for.
///
/// # Errors
/// [`Error::Timeout`] says what `what` says of the job as it was seen last, [`Error::Never`] what `look` said.
pub async fn until(
    cluster: &Cluster,
    name: &str,
    deadline: Deadline,
    mut look: impl FnMut(&Job) -> Outlook,
    what: impl Fn(&Job) -> String,
) -> Result<Job> {
    let query = JobQuery {
        name: Some(name.to_owned()),
        ..JobQuery::default()
    };
    // Where there is no time at all, there still is one for a look.
    let mut passed = std::pin::pin!(deadline.passed());
    let list = tokio::select! {
        list = jobs(cluster, &query) => list?,
        () = &mut passed, if !deadline.only_a_look => {
            let unseen = json!({"metadata": {"name": name}});
            return Err(Error::Timeout(what(&unseen.into())));
        }
    };
    let mut seen = list.jobs.into_iter().next().ok_or_else(|| gone(name))?;
    let known = slice::from_ref(&seen);
    let mut events = watch_jobs(cluster, &query, &list.resource_version, known);
    loop {
        match look(&seen) {
            Outlook::Met => return Ok(seen),
            Outlook::Never(why) => return Err(Error::Never(why)),
            Outlook::Open => {}
        }
        let event = tokio::select! {
            event = events.next() => event,
            () = &mut passed => return Err(Error::Timeout(what(&seen))),
        };
        match event {
            Some(Ok(JobEvent::Applied(job))) => seen = job,
            Some(Ok(JobEvent::Deleted(_))) | None => return Err(gone(name)),
            Some(Err(error)) => return Err(error),
        }
    }
}

/// As the server says it.
fn gone(name: &str) -> Error {
    let plural = format!("{}.{}", jobs::api().plural, di_api::names::GROUP);
    let status = Status::failure(&format!("{plural} {name:?} not found"), "NotFound");
    Error::Server(status.with_code(404).boxed())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_not_waited_for() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cluster = Cluster::at(&server).await;
        let deadline = Deadline::after(Some(Duration::from_millis(50)));
        let look = |_: &Job| Outlook::Met;
        let met = until(&cluster, "j", deadline, look, Job::title).await;
        let error = met.unwrap_err().to_string();
        assert_eq!(error, "timed out waiting for dijobs/j");
    }
}
