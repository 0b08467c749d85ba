//! The worker loop of collectors and learners: a poll runs the next task of the queue; a paused
//! worker rejects tasks.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
};

use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::oneshot;

use crate::{
    Error, Result, chain,
    lifecycle::{PollResult, Stats, TaskReport, Worker, mapping_thread::MappingThread},
    protocol::wire::Role,
};

/// Runs the tasks of a role.
pub trait TaskWorker: Send + 'static {
    /// The tasks.
    type Task: DeserializeOwned + Send + 'static;
    /// The reports.
    type Report: TaskReport + Serialize + Send + 'static;
    /// The configuration.
    type Config: DeserializeOwned + Send;

    /// The role.
    const ROLE: Role;

    /// The current configuration.
    fn current_config(&self) -> Self::Config;

    /// Applies a configuration.
    fn configure(&mut self, config: Self::Config) -> Result<()>;

    /// Runs a task. May take long: it runs on its own thread.
    fn run_task(&mut self, task: Self::Task) -> Result<Self::Report>;

    /// Releases threads and memory until the next task.
    fn stop_workers(&mut self) {}
}

/// Receives the result of a task.
type Reply<W> = oneshot::Sender<Result<<W as TaskWorker>::Report>>;

/// The queue of tasks. They run one after another: parallel tasks would only slow each other down.
pub(crate) struct Queue<W: TaskWorker> {
    waiting: Mutex<Waiting<W>>,
}

struct Waiting<W: TaskWorker> {
    open: bool,
    tasks: VecDeque<(W::Task, Reply<W>)>,
}

impl<W: TaskWorker> Queue<W> {
    pub(crate) const fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting {
                open: false,
                tasks: VecDeque::new(),
            }),
        }
    }

    /// Queues a task unless the worker is paused; its result arrives later.
    pub(crate) fn push_task(&self, task: W::Task) -> Result<oneshot::Receiver<Result<W::Report>>> {
        let mut waiting = self.lock_waiting();
        if !waiting.open {
            return Err(Error::Paused);
        }
        let (reply, answer) = oneshot::channel();
        waiting.tasks.push_back((task, reply));
        Ok(answer)
    }

    /// The next task whose caller still waits.
    fn pop_task(&self) -> Option<(W::Task, Reply<W>)> {
        let mut waiting = self.lock_waiting();
        loop {
            let next = waiting.tasks.pop_front()?;
            if !next.1.is_closed() {
                return Some(next);
            }
        }
    }

    fn open_queue(&self) {
        self.lock_waiting().open = true;
    }

    /// Rejects new tasks and returns the queued ones.
    fn close_queue(&self) {
        let mut waiting = self.lock_waiting();
        waiting.open = false;
        for (_, reply) in waiting.tasks.drain(..) {
            reply.send(Err(Error::Paused)).ok();
        }
    }

    fn lock_waiting(&self) -> MutexGuard<'_, Waiting<W>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a [`TaskWorker`]. Tasks run on their own thread, so a panic is detected.
pub(crate) struct TaskLoop<W: TaskWorker> {
    worker: Arc<Mutex<W>>,
    queue: Arc<Queue<W>>,
    computing: MappingThread,
    tasks: Sender<W::Task>,
    outcomes: Receiver<Result<W::Report>>,
    stats: Stats,
}

impl<W: TaskWorker> TaskLoop<W> {
    pub(crate) fn start(worker: W, queue: Arc<Queue<W>>) -> Result<Self> {
        let worker = Arc::new(Mutex::new(worker));
        let (tasks, upstream) = channel();
        let (downstream, outcomes) = channel();
        let compute = {
            let worker = worker.clone();
            move |task| lock_unpoisoned(&worker).run_task(task)
        };
        Ok(Self {
            worker,
            queue,
            computing: MappingThread::start("compute", compute, upstream, downstream)?,
            tasks,
            outcomes,
            stats: Stats::new(),
        })
    }

    fn compute_task(&mut self, task: W::Task) -> Result<Result<W::Report>> {
        let queued = self.tasks.send(task).ok();
        let outcome = queued.and_then(|()| self.outcomes.recv().ok());
        match outcome {
            Some(outcome) => Ok(outcome),
            None => Err(self.computing.join().err().unwrap_or(Error::TaskLeft)),
        }
    }
}

impl<W: TaskWorker> Worker for TaskLoop<W> {
    type Config = W::Config;

    const NAME: &'static str = W::ROLE.as_str();

    fn configure(&mut self, config: W::Config) -> Result<()> {
        lock_unpoisoned(&self.worker).configure(config)
    }

    fn poll(&mut self) -> Result<PollResult> {
        let Some((task, reply)) = self.queue.pop_task() else {
            return Ok(PollResult::NOTHING);
        };
        let outcome = self.compute_task(task)?;
        let polled = match &outcome {
            Ok(report) => {
                self.stats = report.stats();
                report.poll_result()
            }
            // The caller decides about the task and about a replica that fails too often.
            Err(error) => {
                tracing::error!("task failed: {}", chain(error));
                PollResult::NOTHING
            }
        };
        let (outcome, polled) = match outcome {
            Err(error) if error.is_fatal() => (Err(Error::WorkerEnds(chain(&error))), Err(error)),
            outcome => (outcome, Ok(polled)),
        };
        // A caller that disconnected has sent the task to another replica.
        reply.send(outcome).ok();
        polled
    }

    fn stats(&self) -> Stats {
        self.stats.clone()
    }

    fn start(&mut self) -> Result<()> {
        self.queue.open_queue();
        Ok(())
    }

    fn pause(&mut self) -> Result<()> {
        self.queue.close_queue();
        lock_unpoisoned(&self.worker).stop_workers();
        Ok(())
    }

    fn exit(&mut self) -> Result<()> {
        self.pause()?;
        self.computing.stop();
        Ok(())
    }
}

impl<W: TaskWorker> Drop for TaskLoop<W> {
    /// Returns the queued tasks.
    fn drop(&mut self) {
        self.queue.close_queue();
    }
}

/// Locks the worker. A panicked task ends the thread and with it the worker.
fn lock_unpoisoned<W>(worker: &Mutex<W>) -> MutexGuard<'_, W> {
    worker.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
