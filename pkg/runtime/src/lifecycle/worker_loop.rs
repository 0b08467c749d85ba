use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError},
    thread,
    time::Duration,
};

use serde_json::Value;
use tokio::sync::{oneshot, watch};

use super::{Call, LifecycleHandles, PollResult, Report, Status, Worker};
use crate::{Error, Result, chain};

/// How long to wait for a request where there was nothing to do.
const IDLE: Duration = Duration::from_millis(50);

/// A request to the thread of a worker.
enum WorkerRequest {
    Call(Call, Value, oneshot::Sender<Result<Report>>),
    /// There may be something to do.
    Nudge,
}

/// The handles of a worker. Once all are dropped, it ends.
#[derive(Clone, Debug)]
pub struct WorkerControl {
    asks: Sender<WorkerRequest>,
    report: watch::Receiver<Report>,
}

impl WorkerControl {
    /// Has an idle worker polled at once, as there is something to do.
    pub fn poll_now(&self) {
        // One that has ended has nothing to do.
        self.asks.send(WorkerRequest::Nudge).ok();
    }

    /// Follows what is told of it.
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
        let gone = || Error::WrongStatus {
            call,
            status: self.report.borrow().status,
        };
        let ask = WorkerRequest::Call(call, config, reply);
        self.asks.send(ask).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// A worker that was launched.
#[derive(Debug)]
pub struct LaunchedWorker {
    /// Its handles.
    pub control: WorkerControl,
    /// How it ended, once it has.
    pub ended: oneshot::Receiver<Result<()>>,
}

/// Configures a worker on a thread of its own, and runs it there once it is started, until it is told to exit, fails, or nobody holds its
/// handles any more.
pub fn launch_worker<W: Worker>(worker: W, config: W::Config) -> Result<LaunchedWorker> {
    let (asks, inbox) = mpsc::channel();
    let (report, told) = watch::channel(Report::new(Status::New));
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
    let control = WorkerControl { asks, report: told };
    Ok(LaunchedWorker { control, ended })
}

struct WorkerLoop<W> {
    worker: W,
    inbox: Receiver<WorkerRequest>,
    report: watch::Sender<Report>,
}

impl<W: Worker> WorkerLoop<W> {
    fn run_to_end(mut self, config: W::Config) -> Result<()> {
        let lived = catch_unwind(AssertUnwindSafe(|| {
            self.apply_config(config)?;
            self.run_loop()
        }));
        let result = lived.unwrap_or(Err(Error::Panicked(W::NAME)));
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
                    Ok(ask) => self.serve_request(ask)?,
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

    /// Waits for a request, for not too long where work may come without one.
    fn wait_for_request(&mut self) -> Result<()> {
        let asked = if self.current_status().is_running() {
            self.inbox.recv_timeout(IDLE)
        } else {
            let asked = self.inbox.recv();
            asked.map_err(|_| RecvTimeoutError::Disconnected)
        };
        match asked {
            Ok(ask) => self.serve_request(ask),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => self.change_status(Status::Exiting),
        }
    }

    fn serve_request(&mut self, ask: WorkerRequest) -> Result<()> {
        let WorkerRequest::Call(call, config, reply) = ask else {
            return Ok(());
        };
        let (heeded, ended) = match self.execute_call(call, config) {
            Ok(heeded) => (heeded, Ok(())),
            Err(error) => (Err(Error::WorkerEnds(chain(&error))), Err(error)),
        };
        // Who does not wait any more has its call served all the same.
        reply
            .send(heeded.map(|()| self.report.borrow().clone()))
            .ok();
        ended
    }

    /// Heeds a call, or refuses it; an error ends the worker.
    fn execute_call(&mut self, call: Call, config: Value) -> Result<Result<()>> {
        match self.current_status().next_status(call) {
            Err(refused) => Ok(Err(refused)),
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
            // It was not begun with.
            Err(Error::BadConfig(_)) => {}
            // What was taken on in part must not run.
            Err(_) => self.set_status(Status::New),
        }
        configured
    }

    /// Changes the status, and has the worker do its part.
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
