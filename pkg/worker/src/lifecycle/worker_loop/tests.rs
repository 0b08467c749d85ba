use std::{
    io::{self, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::lifecycle::report::Stats;

/// Records calls and polls.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// Records a repeated entry once: polls are frequent.
    fn record(&self, entry: impl Into<String>) {
        let (mut notes, entry) = (self.0.lock().unwrap(), entry.into());
        if notes.last() != Some(&entry) {
            notes.push(entry);
        }
    }

    fn records(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[derive(Clone, Deserialize)]
struct Config {
    /// Samples of a poll. An odd number fails; 0 panics; 1 is rejected; 5 fails half-way.
    samples: u64,
}

struct Counter {
    config: Config,
    /// The call that fails.
    fails: Option<Call>,
    notes: Notes,
    polls: Arc<AtomicU64>,
}

impl Counter {
    fn answer_call(&self, call: Call, note: &str) -> Result<()> {
        self.notes.record(note);
        match self.fails {
            Some(fails) if fails == call => Err(Error::BadTask(format!("no {call}"))),
            _ => Ok(()),
        }
    }
}

impl Worker for Counter {
    type Config = Config;
    const NAME: &'static str = "counter";

    fn configure(&mut self, config: Config) -> Result<()> {
        self.notes.record(format!("configured {}", config.samples));
        match config.samples {
            1 => return Err(Error::BadConfig("not one".to_owned())),
            5 => return Err(Error::BadTask("five, in part".to_owned())),
            _ => {}
        }
        self.config = config;
        Ok(())
    }

    fn poll(&mut self) -> Result<PollResult> {
        self.notes.record("polled");
        self.polls.fetch_add(1, SeqCst);
        match self.config.samples {
            0 => panic!("nothing to count"),
            odd if odd % 2 == 1 => Err(Error::BadTask("odd".to_owned())),
            samples => Ok(PollResult {
                samples,
                batches: 1,
            }),
        }
    }

    fn stats(&self) -> Stats {
        Stats::from([("limit".into(), 7.0)])
    }

    fn start(&mut self) -> Result<()> {
        self.answer_call(Call::Start, "started")
    }

    fn pause(&mut self) -> Result<()> {
        self.answer_call(Call::Pause, "paused")
    }

    fn exit(&mut self) -> Result<()> {
        self.answer_call(Call::Exit, "exited")
    }
}

fn launch_counter(samples: u64, fails: Option<Call>) -> (LaunchedWorker, Notes, Arc<AtomicU64>) {
    let (notes, polls) = (Notes::default(), Arc::<AtomicU64>::default());
    let worker = Counter {
        config: Config { samples: 0 },
        fails,
        notes: notes.clone(),
        polls: polls.clone(),
    };
    (
        launch_worker(worker, Config { samples }).unwrap(),
        notes,
        polls,
    )
}

async fn start_counter(samples: u64) -> (LaunchedWorker, Notes, Arc<AtomicU64>) {
    let (life, notes, polls) = launch_counter(samples, None);
    let started = life
        .control
        .handle_call(Call::Start, json!(null))
        .await
        .unwrap();
    assert_eq!(started.status, Status::Running);
    (life, notes, polls)
}

#[tokio::test]
async fn worker_polls_while_running_and_serves_calls_between() {
    let (LaunchedWorker { control, ended }, notes, polls) = start_counter(2).await;
    let mut reports = control.subscribe();
    reports.wait_for(|report| report.polls >= 3).await.unwrap();
    let refused = control
        .handle_call(Call::Configure, json!({"samples": 4}))
        .await;
    assert!(refused.is_err(), "rejected while it runs");

    let paused = control.handle_call(Call::Pause, json!(null)).await.unwrap();
    assert_eq!(paused.status, Status::Paused);
    assert_eq!(
        (paused.samples, paused.batches),
        (2 * paused.polls, paused.polls)
    );
    assert!(paused.log_line().ends_with(", limit 7.0000"));
    assert_eq!(polls.load(SeqCst), paused.polls);
    // The loop polls after each answered request, if at all.
    control.poll_now();
    let again = control.handle_call(Call::Pause, json!(null)).await.unwrap();
    assert_eq!(again, paused, "nothing moves");
    assert_eq!(polls.load(SeqCst), paused.polls);

    let configured = control
        .handle_call(Call::Configure, json!({"samples": 4}))
        .await;
    assert_eq!(configured.unwrap().status, Status::Configured);
    let started = control.handle_call(Call::Start, json!(null)).await.unwrap();
    assert_eq!(started.status, Status::Running);
    reports
        .wait_for(|report| report.samples >= paused.samples + 8)
        .await
        .unwrap();
    let exiting = control.handle_call(Call::Exit, json!(null)).await.unwrap();
    assert_eq!(exiting.status, Status::Exiting);
    ended.await.unwrap().unwrap();
    assert_eq!(control.current_report().status, Status::Completed);
    assert!(control.handle_call(Call::Start, json!(null)).await.is_err());
    assert_eq!(
        notes.records(),
        [
            "configured 2",
            "started",
            "polled",
            "paused",
            "configured 4",
            "started",
            "polled",
            "exited"
        ]
    );
}

#[tokio::test]
async fn poll_error_ends_worker() {
    for (samples, said) in [(3, "bad task: odd"), (0, "the thread counter panicked")] {
        let (LaunchedWorker { control, ended }, ..) = start_counter(samples).await;
        let error = ended.await.unwrap().unwrap_err();
        assert_eq!((error.to_string().as_str(), error.exit_code()), (said, 1));
        let report = control.current_report();
        assert_eq!(report.status, Status::Error);
        assert_eq!(report.error.as_deref(), Some(said));
        assert!(report.exiting && !report.running);
    }
}

#[tokio::test]
async fn launched_worker_is_configured_and_not_started() {
    let (LaunchedWorker { control, .. }, notes, polls) = launch_counter(2, None);
    let paused = control.handle_call(Call::Pause, json!(null)).await.unwrap();
    assert_eq!(paused.status, Status::Configured);
    control.poll_now();
    let exiting = control.handle_call(Call::Exit, json!(null)).await.unwrap();
    assert_eq!((exiting.polls, polls.load(SeqCst)), (0, 0));
    assert_eq!(notes.records(), ["configured 2", "exited"]);
}

#[tokio::test]
async fn lifecycle_call_error_ends_worker() {
    let calls = [Call::Start, Call::Pause, Call::Exit];
    for (at, fails) in calls.into_iter().enumerate() {
        let (LaunchedWorker { control, ended }, ..) = launch_counter(2, Some(fails));
        for call in &calls[..at] {
            control.handle_call(*call, json!(null)).await.unwrap();
        }
        let refused = control.handle_call(fails, json!(null)).await.unwrap_err();
        let said = format!("bad task: no {fails}");
        assert_eq!(refused.to_string(), format!("the worker ends: {said}"));
        let error = ended.await.unwrap().unwrap_err();
        assert_eq!((error.to_string(), error.exit_code()), (said.clone(), 1));
        let report = control.current_report();
        assert_eq!((report.status, report.error), (Status::Error, Some(said)));
    }
}

#[tokio::test]
async fn rejected_config_keeps_state_partial_config_blocks_start() {
    let (LaunchedWorker { control, .. }, notes, _) = start_counter(2).await;
    control.handle_call(Call::Pause, json!(null)).await.unwrap();
    for bad in [json!("x"), json!(1)] {
        let refused = control
            .handle_call(Call::Configure, json!({"samples": bad}))
            .await;
        assert!(matches!(refused, Err(Error::BadConfig(_))));
        assert_eq!(control.current_report().status, Status::Paused, "unchanged");
    }
    let refused = control
        .handle_call(Call::Configure, json!({"samples": 5}))
        .await;
    assert!(matches!(refused, Err(Error::BadTask(_))));
    assert_eq!(control.current_report().status, Status::New);
    assert!(control.handle_call(Call::Start, json!(null)).await.is_err());
    assert!(!notes.records().contains(&"exited".to_owned()));
}

#[tokio::test]
async fn worker_without_control_handle_exits() {
    let (LaunchedWorker { control, ended }, notes, _) = start_counter(2).await;
    drop(control);
    ended.await.unwrap().unwrap();
    assert_eq!(notes.records().last().map(String::as_str), Some("exited"));
    // A paused worker waits for requests only.
    let (LaunchedWorker { control, ended }, notes, _) = start_counter(2).await;
    control.handle_call(Call::Pause, json!(null)).await.unwrap();
    drop(control);
    ended.await.unwrap().unwrap();
    assert_eq!(notes.records().last().map(String::as_str), Some("exited"));
}

/// The log of all threads.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// The messages that begin with this name.
    fn lines_of(&self, name: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let messages = text.lines().filter_map(|line| line.split_once("INFO "));
        let messages = messages.map(|(_, message)| message.to_owned());
        messages
            .filter(|message| message.starts_with(name))
            .collect()
    }
}

/// Finds work in its first and third poll.
struct Sparse {
    polls: u32,
}

impl Worker for Sparse {
    type Config = ();
    const NAME: &'static str = "sparse";

    fn configure(&mut self, (): ()) -> Result<()> {
        Ok(())
    }

    fn poll(&mut self) -> Result<PollResult> {
        self.polls += 1;
        Ok(match self.polls {
            1 | 3 => PollResult {
                samples: 5,
                batches: 1,
            },
            _ => PollResult::NOTHING,
        })
    }

    fn stats(&self) -> Stats {
        Stats::from([("poll".into(), f64::from(self.polls))])
    }
}

#[tokio::test]
async fn productive_polls_are_logged_with_worker_stats() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_target(false)
        .with_writer(move || writer.clone())
        .finish();
    // The worker runs on its own thread.
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let LaunchedWorker { control, ended } = launch_worker(Sparse { polls: 0 }, ()).unwrap();
    let mut reports = control.subscribe();
    control.handle_call(Call::Start, json!(null)).await.unwrap();
    reports.wait_for(|report| report.polls == 2).await.unwrap();
    control.handle_call(Call::Exit, json!(null)).await.unwrap();
    ended.await.unwrap().unwrap();
    assert_eq!(
        log.lines_of("sparse"),
        [
            "sparse configured: 0 polls, 0 samples, 0 batches",
            "sparse running: 0 polls, 0 samples, 0 batches",
            "sparse running: 1 polls, 5 samples, 1 batches, poll 1.0000",
            "sparse running: 2 polls, 10 samples, 2 batches, poll 3.0000",
            "sparse exiting: 2 polls, 10 samples, 2 batches, poll 3.0000",
            "sparse completed: 2 polls, 10 samples, 2 batches, poll 3.0000",
        ]
    );
}
