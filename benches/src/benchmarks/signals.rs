//! B14: a signal of the worker runtime from one thread to another, compared with common channels.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use di_worker_lib::sampler::event_loop::{Component, EventLoop, Slot};
use tokio::sync::mpsc::unbounded_channel;

use crate::harness::{
    scale::Scale,
    stats::{At, Findings, spread},
};

const OURS: &str = "event loops";
const LIMIT: f64 = 2.0;

/// Takes the rounds to measure; returns the median of a hand-over, in microseconds.
type Measure = fn(u64) -> Result<f64>;

/// Runs it.
pub fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let at = At {
        benchmark: "B14",
        what: "time from one thread to another, median",
        unit: "µs",
        case: "back and forth".to_owned(),
        x: 1,
    };
    let subjects: [(&str, Measure); 3] = [
        (OURS, by_loops),
        ("channels of the standard library", by_channels),
        ("channels of tokio", by_tokio),
    ];
    for repetition in 0..=scale.repetitions {
        for (subject, measure) in subjects {
            let took = measure(scale.signals)?;
            if repetition > 0 {
                found.add(&at, subject, took);
            }
        }
    }
    let ours = found.find(at.benchmark, at.what, &at.case, OURS);
    let ours = spread(&ours.context("nothing was measured")?.values);
    found.judge(
        at.benchmark,
        &format!("a signal from thread to thread, median: < {LIMIT} µs"),
        format!(
            "{:.2} µs ({:.2} to {:.2})",
            ours.median, ours.least, ours.most
        ),
        ours.median < LIMIT,
    );
    Ok(())
}

/// Sends back what it takes.
struct Echo(Slot<u64>);

impl Component<u64> for Echo {
    fn handle_signal(&mut self, signal: u64) {
        self.0.emit(signal);
    }
}

fn by_loops(rounds: u64) -> Result<f64> {
    let (mut home, mut other) = (EventLoop::default(), EventLoop::default());
    let (reply_slot, echo) = (home.new_slot(), other.new_slot());
    other.put_component(&echo, Echo(reply_slot));
    let thread = thread::spawn(move || other.run());
    let median = back_and_forth(rounds, |round| {
        echo.emit(round);
        home.run_until_signal()
    });
    echo.stop();
    thread.join().map_err(|_| anyhow!("the thread panicked"))?;
    median
}

fn by_channels(rounds: u64) -> Result<f64> {
    let ((to, from_here), (back, from_there)) = (mpsc::channel(), mpsc::channel());
    let thread = thread::spawn(move || {
        for round in from_here {
            back.send(round).ok();
        }
    });
    let median = back_and_forth(rounds, |round| {
        to.send(round).ok()?;
        from_there.recv().ok()
    });
    drop(to);
    thread.join().map_err(|_| anyhow!("the thread panicked"))?;
    median
}

fn by_tokio(rounds: u64) -> Result<f64> {
    let ((to, mut from_here), (back, mut from_there)) = (unbounded_channel(), unbounded_channel());
    let thread = thread::spawn(move || {
        while let Some(round) = from_here.blocking_recv() {
            back.send(round).ok();
        }
    });
    let measured = thread::spawn(move || {
        back_and_forth(rounds, |round| {
            to.send(round).ok()?;
            from_there.blocking_recv()
        })
    });
    let median = measured
        .join()
        .map_err(|_| anyhow!("the thread panicked"))?;
    thread.join().map_err(|_| anyhow!("the thread panicked"))?;
    median
}

/// The median of half of the time that a round takes.
fn back_and_forth(rounds: u64, mut round: impl FnMut(u64) -> Option<u64>) -> Result<f64> {
    let mut took = Vec::new();
    for number in 0..rounds {
        let began = Instant::now();
        let heard = round(number).context("the other thread has ended")?;
        took.push(began.elapsed());
        anyhow::ensure!(heard == number, "{heard} came back for {number}");
    }
    took.sort_unstable();
    let median = took.get(took.len() / 2).copied();
    let median: Duration = median.context("nothing was measured")?;
    Ok(median.as_secs_f64() * 1e6 / 2.0)
}
