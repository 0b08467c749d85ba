use std::{future::pending, time::Duration};

use futures::StreamExt;
use kube::core::Status;
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
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// After this time; none means never, and nothing at all means after one look.
    pub fn after(time: Option<Duration>) -> Self {
        Self(time.and_then(|time| Instant::now().checked_add(time)))
    }

    async fn passed(self) {
        match self.0 {
            Some(at) => sleep_until(at).await,
            None => pending().await,
        }
    }

    /// What is left of the time; none means no end.
    pub fn left(self) -> Option<Duration> {
        self.0
            .map(|at| at.saturating_duration_since(Instant::now()))
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
    let list = jobs(cluster, &query).await?;
    let mut seen = list.jobs.into_iter().next().ok_or_else(|| gone(name))?;
    let mut events = watch_jobs(cluster, &query, &list.resource_version);
    let passed = deadline.passed();
    tokio::pin!(passed);
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
