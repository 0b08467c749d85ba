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
use crate::life::Stats;

/// What is noted of calls and polls.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// Each once in a row: there are many polls.
    fn add(&self, what: impl Into<String>) {
        let (mut notes, what) = (self.0.lock().unwrap(), what.into());
        if notes.last() != Some(&what) {
            notes.push(what);
        }
    }

    fn seen(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[derive(Clone, Deserialize)]
struct Config {
    /// Samples of a poll; an odd number fails, 0 panics, 1 cannot be configured, 5 in part.
    samples: u64,
}

struct Counter {
    config: Config,
    /// What it cannot heed.
    fails: Option<Call>,
    notes: Notes,
    polls: Arc<AtomicU64>,
}

impl Counter {
    fn heed(&self, call: Call, note: &str) -> Result<()> {
        self.notes.add(note);
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
        self.notes.add(format!("configured {}", config.samples));
        match config.samples {
            1 => return Err(Error::BadConfig("not one".to_owned())),
            5 => return Err(Error::BadTask("five, in part".to_owned())),
            _ => {}
        }
        self.config = config;
        Ok(())
    }

    fn poll(&mut self) -> Result<Polled> {
        self.notes.add("polled");
        self.polls.fetch_add(1, SeqCst);
        match self.config.samples {
            0 => panic!("nothing to count"),
            odd if odd % 2 == 1 => Err(Error::BadTask("odd".to_owned())),
            samples => Ok(Polled {
                samples,
                batches: 1,
            }),
        }
    }

    fn stats(&self) -> Stats {
        Stats::from([("limit".into(), 7.0)])
    }

    fn start(&mut self) -> Result<()> {
        self.heed(Call::Start, "started")
    }

    fn pause(&mut self) -> Result<()> {
        self.heed(Call::Pause, "paused")
    }

    fn exit(&mut self) -> Result<()> {
        self.heed(Call::Exit, "exited")
    }
}

fn launched(samples: u64, fails: Option<Call>) -> (Life, Notes, Arc<AtomicU64>) {
    let (notes, polls) = (Notes::default(), Arc::<AtomicU64>::default());
    let worker = Counter {
        config: Config { samples: 0 },
        fails,
        notes: notes.clone(),
        polls: polls.clone(),
    };
    (launch(worker, Config { samples }).unwrap(), notes, polls)
}

async fn counter(samples: u64) -> (Life, Notes, Arc<AtomicU64>) {
    let (life, notes, polls) = launched(samples, None);
    let started = life.control.call(Call::Start, json!(null)).await.unwrap();
    assert_eq!(started.status, Status::Running);
    (life, notes, polls)
}

#[tokio::test]
async fn it_polls_while_it_runs_and_serves_requests_between_polls() {
    let (Life { control, ended }, notes, polls) = counter(2).await;
    let mut told = control.subscribe();
    told.wait_for(|report| report.polls >= 3).await.unwrap();
    let refused = control.call(Call::Configure, json!({"samples": 4})).await;
    assert!(refused.is_err(), "not while it runs");

    let paused = control.call(Call::Pause, json!(null)).await.unwrap();
    assert_eq!(paused.status, Status::Paused);
    assert_eq!(
        (paused.samples, paused.batches),
        (2 * paused.polls, paused.polls)
    );
    assert!(paused.line().ends_with(", limit 7.0000"));
    assert_eq!(polls.load(SeqCst), paused.polls);
    // Whatever comes after requests has had its turn once they are answered.
    control.nudge();
    let again = control.call(Call::Pause, json!(null)).await.unwrap();
    assert_eq!(again, paused, "nothing moves");
    assert_eq!(polls.load(SeqCst), paused.polls);

    let configured = control.call(Call::Configure, json!({"samples": 4})).await;
    assert_eq!(configured.unwrap().status, Status::Configured);
    let started = control.call(Call::Start, json!(null)).await.unwrap();
    assert_eq!(started.status, Status::Running);
    told.wait_for(|report| report.samples >= paused.samples + 8)
        .await
        .unwrap();
    let exiting = control.call(Call::Exit, json!(null)).await.unwrap();
    assert_eq!(exiting.status, Status::Exiting);
    ended.await.unwrap().unwrap();
    assert_eq!(control.report().status, Status::Completed);
    assert!(control.call(Call::Start, json!(null)).await.is_err());
    assert_eq!(
        notes.seen(),
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
async fn an_error_in_a_poll_is_how_it_ends() {
    for (samples, said) in [(3, "bad task: odd"), (0, "the thread counter panicked")] {
        let (Life { control, ended }, ..) = counter(samples).await;
        let error = ended.await.unwrap().unwrap_err();
        assert_eq!((error.to_string().as_str(), error.exit_code()), (said, 1));
        let report = control.report();
        assert_eq!(report.status, Status::Error);
        assert_eq!(report.error.as_deref(), Some(said));
        assert!(report.exiting && !report.running);
    }
}

#[tokio::test]
async fn launched_it_is_configured_and_waits_to_be_started() {
    let (Life { control, .. }, notes, polls) = launched(2, None);
    let paused = control.call(Call::Pause, json!(null)).await.unwrap();
    assert_eq!(paused.status, Status::Configured);
    control.nudge();
    let exiting = control.call(Call::Exit, json!(null)).await.unwrap();
    assert_eq!((exiting.polls, polls.load(SeqCst)), (0, 0));
    assert_eq!(notes.seen(), ["configured 2", "exited"]);
}

#[tokio::test]
async fn an_error_in_what_a_call_does_is_how_it_ends() {
    let calls = [Call::Start, Call::Pause, Call::Exit];
    for (at, fails) in calls.into_iter().enumerate() {
        let (Life { control, ended }, ..) = launched(2, Some(fails));
        for call in &calls[..at] {
            control.call(*call, json!(null)).await.unwrap();
        }
        let refused = control.call(fails, json!(null)).await.unwrap_err();
        let said = format!("bad task: no {fails}");
        assert_eq!(refused.to_string(), format!("the worker ends: {said}"));
        let error = ended.await.unwrap().unwrap_err();
        assert_eq!((error.to_string(), error.exit_code()), (said.clone(), 1));
        let report = control.report();
        assert_eq!((report.status, report.error), (Status::Error, Some(said)));
    }
}

#[tokio::test]
async fn one_that_is_refused_a_configuration_is_as_before_and_one_that_has_a_part_of_it_cannot_run()
{
    let (Life { control, .. }, notes, _) = counter(2).await;
    control.call(Call::Pause, json!(null)).await.unwrap();
    for bad in [json!("x"), json!(1)] {
        let refused = control.call(Call::Configure, json!({"samples": bad})).await;
        assert!(matches!(refused, Err(Error::BadConfig(_))));
        assert_eq!(control.report().status, Status::Paused, "as it was before");
    }
    let refused = control.call(Call::Configure, json!({"samples": 5})).await;
    assert!(matches!(refused, Err(Error::BadTask(_))));
    assert_eq!(control.report().status, Status::New);
    assert!(control.call(Call::Start, json!(null)).await.is_err());
    assert!(!notes.seen().contains(&"exited".to_owned()));
}

#[tokio::test]
async fn it_ends_once_nobody_holds_its_handles() {
    let (Life { control, ended }, notes, _) = counter(2).await;
    drop(control);
    ended.await.unwrap().unwrap();
    assert_eq!(notes.seen().last().map(String::as_str), Some("exited"));
    // Paused, it waits for nothing but requests.
    let (Life { control, ended }, notes, _) = counter(2).await;
    control.call(Call::Pause, json!(null)).await.unwrap();
    drop(control);
    ended.await.unwrap().unwrap();
    assert_eq!(notes.seen().last().map(String::as_str), Some("exited"));
}

/// What all threads have logged.
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
    /// The messages of whoever has this name.
    fn of(&self, name: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let messages = text.lines().filter_map(|line| line.split_once("INFO "));
        let messages = messages.map(|(_, message)| message.to_owned());
        messages
            .filter(|message| message.starts_with(name))
            .collect()
    }
}

/// Finds something to do in its first and in its third poll.
struct Sparse {
    polls: u32,
}

impl Worker for Sparse {
    type Config = ();
    const NAME: &'static str = "sparse";

    fn configure(&mut self, (): ()) -> Result<()> {
        Ok(())
    }

    fn poll(&mut self) -> Result<Polled> {
        self.polls += 1;
        Ok(match self.polls {
            1 | 3 => Polled {
                samples: 5,
                batches: 1,
            },
            _ => Polled::NOTHING,
        })
    }

    fn stats(&self) -> Stats {
        Stats::from([("poll".into(), f64::from(self.polls))])
    }
}

#[tokio::test]
async fn polls_that_did_something_are_logged_with_the_workers_own_numbers() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_target(false)
        .with_writer(move || writer.clone())
        .finish();
    // The worker has a thread of its own.
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let Life { control, ended } = launch(Sparse { polls: 0 }, ()).unwrap();
    let mut told = control.subscribe();
    control.call(Call::Start, json!(null)).await.unwrap();
    told.wait_for(|report| report.polls == 2).await.unwrap();
    control.call(Call::Exit, json!(null)).await.unwrap();
    ended.await.unwrap().unwrap();
    assert_eq!(
        log.of("sparse"),
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
