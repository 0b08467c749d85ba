use std::time::Duration;

use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    Error, Result,
    lifecycle::{
        report::{PollResult, Report, Stats},
        routes::LifecycleHandles,
        status::{Call, Status},
    },
};

/// The life cycle of a process that hands out tasks, such as a coordinator. A paused gate admits no
/// task. The pause call returns when no task is in flight, so nothing changes after it.
#[derive(Clone, Debug)]
pub struct PauseGate {
    report: watch::Sender<Report>,
    in_flight: watch::Sender<usize>,
}

/// A task in flight. Dropping it counts as a failure.
#[derive(Debug)]
pub struct InFlightTask<'a>(&'a PauseGate);

impl PauseGate {
    /// A gate that runs.
    pub fn new_running() -> Self {
        Self::with_status(Status::Running)
    }

    /// A gate that rejects `start` until [`mark_ready`](Self::mark_ready).
    pub fn new_unready() -> Self {
        Self::with_status(Status::New)
    }

    fn with_status(status: Status) -> Self {
        Self {
            report: watch::Sender::new(Report::new(status)),
            in_flight: watch::Sender::new(0),
        }
    }

    /// Marks the dependencies of the gate as present.
    pub fn mark_ready(&self) {
        let is_new = |report: &mut Report| {
            report.status == Status::New && report.set_status(Status::Configured)
        };
        self.report.send_if_modified(is_new);
    }

    /// Calls `take` with a new configuration, unless the gate runs.
    pub fn configure(&self, apply_settings: impl FnOnce()) -> Result<()> {
        self.apply_call(Call::Configure, apply_settings)
    }

    /// Subscribes to the report.
    pub fn subscribe(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    /// Admits a task if the gate runs.
    pub fn try_admit(&self) -> Option<InFlightTask<'_>> {
        if !self.is_running() {
            return None;
        }
        // This order matters: the pause call sets the status first and reads the count afterwards.
        self.in_flight.send_modify(|number| *number += 1);
        let task = InFlightTask(self);
        self.is_running().then_some(task)
    }

    /// Waits until the gate runs, then admits a task.
    pub async fn admit_when_running(&self) -> InFlightTask<'_> {
        loop {
            if let Some(task) = self.try_admit() {
                return task;
            }
            self.wait_until(|report| report.running).await;
        }
    }

    /// Sets the numbers that are reported in addition to the counts.
    pub fn set_stats(&self, stats: Stats) {
        self.report.send_modify(|report| report.stats = stats);
    }

    /// Whether the gate admits tasks.
    pub fn is_running(&self) -> bool {
        self.report.borrow().running
    }

    /// Records the result.
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

    /// Waits for an exit call.
    pub async fn wait_for_exit(&self) {
        self.wait_until(|report| report.exiting).await;
    }

    /// Waits until the gate has run for `time`; pauses do not count.
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

    fn apply_call(&self, call: Call, on_success: impl FnOnce()) -> Result<()> {
        let mut result = Ok(());
        self.report.send_if_modified(|report| {
            let after = match (report.status, call) {
                (Status::New, Call::Configure | Call::Start) => Err(Error::NotReady(call)),
                (status, call) => status.next_status(call).map_err(Error::from),
            };
            match after {
                Ok(status) => {
                    on_success();
                    report.set_status(status)
                }
                Err(error) => {
                    result = Err(error);
                    false
                }
            }
        });
        if result.is_ok() {
            tracing::info!("{}", self.report.borrow().log_line());
        }
        result
    }

    async fn wait_until(&self, is_met: impl FnMut(&Report) -> bool) {
        // The channel cannot close: `self` holds a sender.
        self.report.subscribe().wait_for(is_met).await.ok();
    }
}

impl InFlightTask<'_> {
    /// Adds the counts of a finished task.
    pub fn complete(self, polled: PollResult) {
        self.0.report.send_modify(|report| *report += polled);
    }
}

impl Drop for InFlightTask<'_> {
    fn drop(&mut self) {
        self.0.in_flight.send_modify(|number| *number -= 1);
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
            let mut in_flight = self.in_flight.subscribe();
            tokio::select! {
                _ = in_flight.wait_for(|number| *number == 0) => {}
                () = self.wait_until(|report| report.status != Status::Paused) => {}
            }
        }
        Ok(self.current_report())
    }
}

#[cfg(test)]
mod tests;
