use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError},
    thread,
    time::Duration,
};

use serde_json::Value;
use tokio::sync::{oneshot, watch};

use super::{Call, Handles, Polled, Report, Status, Worker};
use crate::{Error, Result, chain};

/// How long to wait for a request where there was nothing to do.
const IDLE: Duration = Duration::from_millis(50);

/// A request to the thread of a worker.
enum Ask {
    Call(Call, Value, oneshot::Sender<Result<Report>>),
    /// There may be something to do.
    Nudge,
}

/// The handles of a worker. Once all are dropped, it ends.
#[derive(Clone, Debug)]
pub struct Control {
    asks: Sender<Ask>,
    report: watch::Receiver<Report>,
}

impl Control {
    /// Has an idle worker polled at once, as there is something to do.
    pub fn nudge(&self) {
        // One that has ended has nothing to do.
        self.asks.send(Ask::Nudge).ok();
    }

    /// Follows what is told of it.
    pub fn subscribe(&self) -> watch::Receiver<Report> {
        self.report.clone()
    }
}

impl Handles for Control {
    fn report(&self) -> Report {
        self.report.borrow().clone()
    }

    async fn call(&self, call: Call, config: Value) -> Result<Report> {
        let (reply, answer) = oneshot::channel();
        let gone = || Error::WrongStatus {
            call,
            status: self.report.borrow().status,
        };
        let ask = Ask::Call(call, config, reply);
        self.asks.send(ask).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// A worker that was launched.
#[derive(Debug)]
pub struct Life {
    /// Its handles.
    pub control: Control,
    /// How it ended, once it has.
    pub ended: oneshot::Receiver<Result<()>>,
}

/// Configures a worker on a thread of its own, and runs it there once it is started, until it is told to exit, fails, or nobody holds its
/// handles any more.
pub fn launch<W: Worker>(worker: W, config: W::Config) -> Result<Life> {
    let (asks, inbox) = mpsc::channel();
    let (report, told) = watch::channel(Report::new(Status::New));
    let (end, ended) = oneshot::channel();
    let running = Loop {
        worker,
        inbox,
        report,
    };
    thread::Builder::new()
        .name(W::NAME.to_owned())
        .spawn(move || end.send(running.live(config)))
        .map_err(Error::Thread)?;
    let control = Control { asks, report: told };
    Ok(Life { control, ended })
}

struct Loop<W> {
    worker: W,
    inbox: Receiver<Ask>,
    report: watch::Sender<Report>,
}

impl<W: Worker> Loop<W> {
    fn live(mut self, config: W::Config) -> Result<()> {
        let lived = catch_unwind(AssertUnwindSafe(|| {
            self.configure(config)?;
            self.run()
        }));
        let result = lived.unwrap_or(Err(Error::Panicked(W::NAME)));
        match &result {
            Ok(()) => self.set(Status::Completed),
            Err(error) => {
                let error = chain(error);
                self.report.send_modify(|report| report.error = Some(error));
                self.set(Status::Error);
            }
        }
        result
    }

    fn run(&mut self) -> Result<()> {
        loop {
            let polled = match self.status() {
                status if status.is_exiting() => return Ok(()),
                status if status.is_running() => self.poll()?,
                _ => Polled::NOTHING,
            };
            if polled == Polled::NOTHING {
                self.wait()?;
            }
            loop {
                match self.inbox.try_recv() {
                    Ok(ask) => self.serve(ask)?,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        self.apply(Status::Exiting)?;
                        break;
                    }
                }
            }
        }
    }

    fn poll(&mut self) -> Result<Polled> {
        let polled = self.worker.poll()?;
        if polled != Polled::NOTHING {
            let stats = self.worker.stats();
            self.report.send_modify(|report| {
                *report += polled;
                report.stats = stats;
            });
            self.log();
        }
        Ok(polled)
    }

    /// Waits for a request, for not too long where work may come without one.
    fn wait(&mut self) -> Result<()> {
        let asked = if self.status().is_running() {
            self.inbox.recv_timeout(IDLE)
        } else {
            let asked = self.inbox.recv();
            asked.map_err(|_| RecvTimeoutError::Disconnected)
        };
        match asked {
            Ok(ask) => self.serve(ask),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => self.apply(Status::Exiting),
        }
    }

    fn serve(&mut self, ask: Ask) -> Result<()> {
        let Ask::Call(call, config, reply) = ask else {
            return Ok(());
        };
        let (heeded, ended) = match self.call(call, config) {
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
    fn call(&mut self, call: Call, config: Value) -> Result<Result<()>> {
        match self.status().after(call) {
            Err(refused) => Ok(Err(refused)),
            Ok(_) if call == Call::Configure => Ok(serde_json::from_value(config)
                .map_err(|error| Error::BadConfig(error.to_string()))
                .and_then(|config| self.configure(config))),
            Ok(status) => self.apply(status).map(Ok),
        }
    }

    fn configure(&mut self, config: W::Config) -> Result<()> {
        let configured = self.worker.configure(config);
        match &configured {
            Ok(()) => self.set(Status::Configured),
            // It was not begun with.
            Err(Error::BadConfig(_)) => {}
            // What was taken on in part must not run.
            Err(_) => self.set(Status::New),
        }
        configured
    }

    /// Changes the status, and has the worker do its part.
    fn apply(&mut self, status: Status) -> Result<()> {
        if status == self.status() {
            return Ok(());
        }
        match status {
            Status::Running => self.worker.start()?,
            Status::Paused => self.worker.pause()?,
            Status::Exiting => self.worker.exit()?,
            Status::New | Status::Configured | Status::Completed | Status::Error => {}
        }
        self.set(status);
        Ok(())
    }

    fn set(&mut self, status: Status) {
        let mut changed = false;
        self.report
            .send_modify(|report| changed = report.set(status));
        if changed {
            self.log();
        }
    }

    fn log(&self) {
        tracing::info!("{} {}", W::NAME, self.report.borrow().line());
    }

    fn status(&self) -> Status {
        self.report.borrow().status
    }
}

#[cfg(test)]
mod tests;
