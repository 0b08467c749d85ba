use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError},
    thread,
    time::Duration,
};

use serde_json::Value;
use tokio::sync::{oneshot, watch};

use crate::{
    Error, Result, chain,
    lifecycle::{
        report::{PollResult, Report},
        routes::LifecycleHandles,
        status::{Call, CallError, Status},
        worker::Worker,
    },
};

/// Time between two polls of an idle worker.
const IDLE: Duration = Duration::from_millis(50);

/// A message to the thread of a worker.
enum WorkerRequest {
    Call(Call, Value, oneshot::Sender<Result<Report>>),
    /// Poll at once: there may be work.
    PollNow,
}

/// The handle of a worker. The worker exits when all clones are dropped.
#[derive(Clone, Debug)]
pub struct WorkerControl {
    requests: Sender<WorkerRequest>,
    report: watch::Receiver<Report>,
}

impl WorkerControl {
    /// Makes an idle worker poll at once.
    pub fn poll_now(&self) {
        // Sending fails only if the worker has ended.
        self.requests.send(WorkerRequest::PollNow).ok();
    }

    /// Subscribes to the report.
    pub fn subscribe(&self) -> watch::Receiver<Report> {
        self.report.clone()
    }
}

impl LifecycleHandles for WorkerControl {
    fn current_report(&self) -> Report {
        self.report.borrow().clone()
    }

    async fn handle_call(&self, call: Call, config: Value) -> Result<Report> {
        let (reply, answer) = oneshot::channel();
        let ended = || CallError::WrongStatus {
            call,
            status: self.report.borrow().status,
        };
        let request = WorkerRequest::Call(call, config, reply);
        self.requests.send(request).map_err(|_| ended())?;
        answer.await.unwrap_or_else(|_| Err(ended().into()))
    }
}

/// A launched worker.
#[derive(Debug)]
pub struct LaunchedWorker {
    /// The handle of the worker.
    pub control: WorkerControl,
    /// The result, when the worker has ended.
    pub ended: oneshot::Receiver<Result<()>>,
}

/// Configures a worker on its own thread. The thread runs until an exit call, an error, or until
/// all handles are dropped.
pub fn launch_worker<W: Worker>(worker: W, config: W::Config) -> Result<LaunchedWorker> {
    let (requests, inbox) = mpsc::channel();
    let (report, receiver) = watch::channel(Report::new(Status::New));
    let (end, ended) = oneshot::channel();
    let running = WorkerLoop {
        worker,
        inbox,
        report,
    };
    thread::Builder::new()
        .name(W::NAME.to_owned())
        .spawn(move || end.send(running.run_to_end(config)))
        .map_err(Error::Thread)?;
    let control = WorkerControl {
        requests,
        report: receiver,
    };
    Ok(LaunchedWorker { control, ended })
}

struct WorkerLoop<W> {
    worker: W,
    inbox: Receiver<WorkerRequest>,
    report: watch::Sender<Report>,
}

impl<W: Worker> WorkerLoop<W> {
    fn run_to_end(mut self, config: W::Config) -> Result<()> {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            self.apply_config(config)?;
            self.run_loop()
        }));
        let result = caught.unwrap_or(Err(Error::Panicked(W::NAME)));
        match &result {
            Ok(()) => self.set_status(Status::Completed),
            Err(error) => {
                let error = chain(error);
                self.report.send_modify(|report| report.error = Some(error));
                self.set_status(Status::Error);
            }
        }
        result
    }

    fn run_loop(&mut self) -> Result<()> {
        loop {
            let polled = match self.current_status() {
                status if status.is_exiting() => return Ok(()),
                status if status.is_running() => self.poll_once()?,
                _ => PollResult::NOTHING,
            };
            if polled == PollResult::NOTHING {
                self.wait_for_request()?;
            }
            loop {
                match self.inbox.try_recv() {
                    Ok(request) => self.serve_request(request)?,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        self.change_status(Status::Exiting)?;
                        break;
                    }
                }
            }
        }
    }

    fn poll_once(&mut self) -> Result<PollResult> {
        let polled = self.worker.poll()?;
        if polled != PollResult::NOTHING {
            let stats = self.worker.stats();
            self.report.send_modify(|report| {
                *report += polled;
                report.stats = stats;
            });
            self.log_report();
        }
        Ok(polled)
    }

    /// Waits for a request; a running worker waits at most [`IDLE`].
    fn wait_for_request(&mut self) -> Result<()> {
        let received = if self.current_status().is_running() {
            self.inbox.recv_timeout(IDLE)
        } else {
            let received = self.inbox.recv();
            received.map_err(|_| RecvTimeoutError::Disconnected)
        };
        match received {
            Ok(request) => self.serve_request(request),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => self.change_status(Status::Exiting),
        }
    }

    fn serve_request(&mut self, request: WorkerRequest) -> Result<()> {
        let WorkerRequest::Call(call, config, reply) = request else {
            return Ok(());
        };
        let (reported, ended) = match self.execute_call(call, config) {
            Ok(reported) => (reported, Ok(())),
            Err(error) => (Err(Error::WorkerEnds(chain(&error))), Err(error)),
        };
        // The call is applied even if the caller has disconnected.
        reply
            .send(reported.map(|()| self.report.borrow().clone()))
            .ok();
        ended
    }

    /// Applies or rejects a call. The outer error ends the worker.
    fn execute_call(&mut self, call: Call, config: Value) -> Result<Result<()>> {
        match self.current_status().next_status(call) {
            Err(rejected) => Ok(Err(rejected.into())),
            Ok(_) if call == Call::Configure => Ok(serde_json::from_value(config)
                .map_err(|error| Error::BadConfig(error.to_string()))
                .and_then(|config| self.apply_config(config))),
            Ok(status) => self.change_status(status).map(Ok),
        }
    }

    fn apply_config(&mut self, config: W::Config) -> Result<()> {
        let configured = self.worker.configure(config);
        match &configured {
            Ok(()) => self.set_status(Status::Configured),
            // BadConfig leaves the worker as it was.
            Err(Error::BadConfig(_)) => {}
            // A partially applied configuration must not run.
            Err(_) => self.set_status(Status::New),
        }
        configured
    }

    /// Changes the status and calls the worker's hook.
    fn change_status(&mut self, status: Status) -> Result<()> {
        if status == self.current_status() {
            return Ok(());
        }
        match status {
            Status::Running => self.worker.start()?,
            Status::Paused => self.worker.pause()?,
            Status::Exiting => self.worker.exit()?,
            Status::New | Status::Configured | Status::Completed | Status::Error => {}
        }
        self.set_status(status);
        Ok(())
    }

    fn set_status(&mut self, status: Status) {
        let mut changed = false;
        self.report
            .send_modify(|report| changed = report.set_status(status));
        if changed {
            self.log_report();
        }
    }

    fn log_report(&self) {
        tracing::info!("{} {}", W::NAME, self.report.borrow().log_line());
    }

    fn current_status(&self) -> Status {
        self.report.borrow().status
    }
}

#[cfg(test)]
mod tests;
