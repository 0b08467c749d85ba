use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;
use crate::protocol::wire::CollectorReport;

/// Reports the task; 0 fails, 1 panics. Counts `stop_workers`.
#[derive(Default)]
struct Seeds(Arc<AtomicU64>);

impl TaskWorker for Seeds {
    type Task = u64;
    type Report = CollectorReport;
    type Config = ();
    const ROLE: Role = Role::Collector;

    fn current_config(&self) {}

    fn configure(&mut self, (): ()) -> Result<()> {
        Ok(())
    }

    fn stop_workers(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn run_task(&mut self, task: u64) -> Result<CollectorReport> {
        match task {
            0 => Err(Error::BadTask("none".to_owned())),
            1 => panic!("one"),
            frames => Ok(CollectorReport {
                frames,
                ..CollectorReport::default()
            }),
        }
    }
}

fn start_loop() -> (TaskLoop<Seeds>, Arc<Queue<Seeds>>) {
    start_loop_with(Seeds::default())
}

fn start_loop_with(worker: Seeds) -> (TaskLoop<Seeds>, Arc<Queue<Seeds>>) {
    let queue = Arc::new(Queue::new());
    let mut tasks = TaskLoop::start(worker, queue.clone()).unwrap();
    tasks.configure(()).unwrap();
    tasks.start().unwrap();
    (tasks, queue)
}

#[test]
fn poll_runs_next_task() {
    let (mut tasks, queue) = start_loop();
    assert_eq!(tasks.poll().unwrap(), PollResult::NOTHING);
    let mut answers: Vec<_> = [5, 0, 7].map(|task| queue.push_task(task).unwrap()).into();
    let polled: Vec<_> = (0..3).map(|_| tasks.poll().unwrap().samples).collect();
    assert_eq!(polled, [5, 0, 7], "a failed task does not end the worker");
    let mut answer = || answers.remove(0).try_recv().unwrap();
    assert_eq!(answer().unwrap().frames, 5);
    assert!(matches!(answer(), Err(Error::BadTask(_))));
    assert_eq!(answer().unwrap().frames, 7);
}

#[test]
fn paused_queue_returns_tasks_and_rejects_new_ones() {
    let (mut tasks, queue) = start_loop();
    let mut waiting = queue.push_task(5).unwrap();
    tasks.pause().unwrap();
    assert!(matches!(waiting.try_recv().unwrap(), Err(Error::Paused)));
    assert!(matches!(queue.push_task(6), Err(Error::Paused)));
    tasks.start().unwrap();
    // A caller that disconnected has sent the task to another replica.
    drop(queue.push_task(7).unwrap());
    let mut answer = queue.push_task(8).unwrap();
    assert_eq!(tasks.poll().unwrap().samples, 8);
    assert_eq!(answer.try_recv().unwrap().unwrap().frames, 8);
    drop(tasks);
    assert!(queue.push_task(9).is_err(), "the worker has ended");
}

#[test]
fn worker_stops_threads_on_pause_and_exit() {
    let rests = Arc::<AtomicU64>::default();
    let (mut tasks, queue) = start_loop_with(Seeds(rests.clone()));
    assert_eq!(rests.load(Relaxed), 0);
    tasks.pause().unwrap();
    assert_eq!(rests.load(Relaxed), 1);
    tasks.start().unwrap();
    let _answer = queue.push_task(5).unwrap();
    assert_eq!(tasks.poll().unwrap().samples, 5);
    tasks.exit().unwrap();
    assert_eq!(rests.load(Relaxed), 2);
}

#[test]
fn panicking_task_ends_worker() {
    let (mut tasks, queue) = start_loop();
    let mut answer = queue.push_task(1).unwrap();
    let error = tasks.poll().unwrap_err();
    assert_eq!(error.to_string(), "the thread compute panicked");
    assert!(answer.try_recv().is_err(), "the caller gets an error");
}
