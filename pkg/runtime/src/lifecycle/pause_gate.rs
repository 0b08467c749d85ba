use std::time::Duration;

use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{Call, LifecycleHandles, PollResult, Report, Stats, Status};
use crate::{Error, Result};

/// The life cycle of what hands tasks out, as a coordinator does. Paused, it hands out none; that it is, is told once none is on its way any
/// more, so nothing moves from then on.
#[derive(Clone, Debug)]
pub struct PauseGate {
    report: watch::Sender<Report>,
    on_their_way: watch::Sender<usize>,
}

/// A task that was handed out; dropped, it has failed.
#[derive(Debug)]
pub struct InFlightTask<'a>(&'a PauseGate);

impl PauseGate {
    /// One that runs.
    pub fn new_running() -> Self {
        Self::with_status(Status::Running)
    }

    /// One that cannot be started before what it needs is there.
    pub fn new_unready() -> Self {
        Self::with_status(Status::New)
    }

    fn with_status(status: Status) -> Self {
        Self {
            report: watch::Sender::new(Report::new(status)),
            on_their_way: watch::Sender::new(0),
        }
    }

    /// What it needs is there.
    pub fn mark_ready(&self) {
        let is_new =
            |report: &mut Report| report.status == Status::New && report.set_status(Status::Configured);
        self.report.send_if_modified(is_new);
    }

    /// Has another configuration taken on, unless it runs.
    pub fn configure(&self, take: impl FnOnce()) -> Result<()> {
        self.apply_call(Call::Configure, take)
    }

    /// How it is, unless it is about to be so: tasks are on their way that were let through before.
    pub fn settled_status(&self) -> Option<Status> {
        let status = self.report.borrow().status;
        (status.is_running() || *self.on_their_way.borrow() == 0).then_some(status)
    }

    /// Follows what is told of it.
    pub fn subscribe(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    /// Lets a task through, if it runs.
    pub fn try_admit(&self) -> Option<InFlightTask<'_>> {
        if !self.is_running() {
            return None;
        }
        // In this order: who pauses looks at both the other way round.
        self.on_their_way.send_modify(|number| *number += 1);
        let flight = InFlightTask(self);
        self.is_running().then_some(flight)
    }

    /// Lets a task through, once it runs.
    pub async fn admit_when_running(&self) -> InFlightTask<'_> {
        loop {
            if let Some(flight) = self.try_admit() {
                return flight;
            }
            self.wait_until(|report| report.running).await;
        }
    }

    /// Tells of it beside the counts.
    pub fn set_stats(&self, stats: Stats) {
        self.report.send_modify(|report| report.stats = stats);
    }

    /// Tells one thing more of it, or no more.
    pub fn set_stat(&self, name: &'static str, value: Option<f64>) {
        self.report.send_if_modified(|report| {
            let before = match value {
                Some(value) => report.stats.insert(name.into(), value),
                None => report.stats.remove(name),
            };
            before != value
        });
    }

    /// Whether it lets tasks through.
    pub fn is_running(&self) -> bool {
        self.report.borrow().running
    }

    /// Tells how it ended.
    pub fn mark_ended(&self, error: Option<String>) {
        self.report.send_modify(|report| {
            report.set_status(if error.is_some() {
                Status::Error
            } else {
                Status::Completed
            });
            report.error = error;
        });
    }

    /// Waits until it is told to exit.
    pub async fn wait_for_exit(&self) {
        self.wait_until(|report| report.exiting).await;
    }

    /// Waits until it has run for so long; pauses do not count.
    pub async fn run_for(&self, mut time: Duration) {
        loop {
            self.wait_until(|report| report.running).await;
            let start = Instant::now();
            tokio::select! {
                () = sleep(time) => return,
                () = self.wait_until(|report| !report.running) => {
                    time = time.saturating_sub(start.elapsed());
                }
            }
        }
    }

    fn apply_call(&self, call: Call, meanwhile: impl FnOnce()) -> Result<()> {
        let mut told = Ok(());
        self.report.send_if_modified(|report| {
            let after = match (report.status, call) {
                (Status::New, Call::Configure | Call::Start) => Err(Error::NotReady(call)),
                (status, call) => status.next_status(call),
            };
            match after {
                Ok(status) => {
                    meanwhile();
                    report.set_status(status)
                }
                Err(error) => {
                    told = Err(error);
                    false
                }
            }
        });
        if told.is_ok() {
            tracing::info!("{}", self.report.borrow().log_line());
        }
        told
    }

    async fn wait_until(&self, is_met: impl FnMut(&Report) -> bool) {
        // It cannot close: this is a sender of it.
        self.report.subscribe().wait_for(is_met).await.ok();
    }
}

impl InFlightTask<'_> {
    /// It was done.
    pub fn complete(self, polled: PollResult) {
        self.0.report.send_modify(|report| *report += polled);
    }
}

impl Drop for InFlightTask<'_> {
    fn drop(&mut self) {
        self.0.on_their_way.send_modify(|number| *number -= 1);
    }
}

impl LifecycleHandles for PauseGate {
    fn current_report(&self) -> Report {
        self.report.borrow().clone()
    }

    async fn handle_call(&self, call: Call, _: Value) -> Result<Report> {
        if call == Call::Configure {
            let why = "its command line configures it".to_owned();
            return Err(Error::BadConfig(why));
        }
        self.apply_call(call, || {})?;
        if call == Call::Pause {
            let mut on_their_way = self.on_their_way.subscribe();
            tokio::select! {
                _ = on_their_way.wait_for(|number| *number == 0) => {}
                () = self.wait_until(|report| report.status != Status::Paused) => {}
            }
        }
        Ok(self.current_report())
    }
}

#[cfg(test)]
mod tests;
