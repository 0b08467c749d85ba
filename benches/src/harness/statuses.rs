//! Statuses of jobs from a watch.

use std::{collections::BTreeMap, time::Instant};

use anyhow::{Context, Result, bail};
use di_api::{DIJob, DIJobStatus};
use futures::StreamExt;
use kube::{
    ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use crate::harness::{cluster::Space, scale::PATIENCE};

/// The statuses of all jobs, and when they changed.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The last one of each job.
    pub last: BTreeMap<String, DIJobStatus>,
    /// When a status came, of which job, and the collectors that it counts as ready.
    pub came: Vec<(Instant, String, usize)>,
}

impl Seen {
    /// Whether this number of jobs has the expected status.
    pub fn are(&self, jobs: usize, done: impl Fn(&DIJobStatus) -> bool) -> bool {
        self.last.len() >= jobs && self.last.values().all(done)
    }
}

/// Watches the jobs of a namespace.
pub struct Statuses {
    seen: watch::Receiver<Seen>,
    _task: JoinSet<()>,
}

impl Statuses {
    /// Watches from now on.
    pub fn of(space: &Space) -> Self {
        let (sender, seen) = watch::channel(Seen::default());
        let mut task = JoinSet::new();
        let jobs = watcher(space.jobs(), watcher::Config::default());
        task.spawn(async move {
            let jobs = jobs.default_backoff();
            let mut jobs = std::pin::pin!(jobs.applied_objects());
            while let Some(job) = jobs.next().await {
                let Ok(job): watcher::Result<DIJob> = job else {
                    continue;
                };
                let name = job.name_any();
                let status = job.status.unwrap_or_default();
                sender.send_modify(|seen| {
                    seen.came
                        .push((Instant::now(), name.clone(), ready(&status)));
                    seen.last.insert(name, status);
                });
            }
        });
        Self { seen, _task: task }
    }

    /// Waits until they are as they should be.
    pub async fn until(&self, what: &str, done: impl FnMut(&Seen) -> bool) -> Result<()> {
        let mut seen = self.seen.clone();
        let reached = timeout(PATIENCE, seen.wait_for(done)).await;
        let Ok(reached) = reached else {
            bail!("{what} did not come to pass");
        };
        reached.context("the watch ended")?;
        Ok(())
    }

    /// The statuses so far.
    pub fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }
}

/// How many collectors a status counts as ready.
pub fn ready(status: &DIJobStatus) -> usize {
    let text = status.collectors_ready.as_deref().unwrap_or_default();
    let ready = text
        .split_once('/')
        .and_then(|(ready, _)| ready.parse().ok());
    ready.unwrap_or(0)
}
