//! B20: a thousand long polls wait for changes of memberships.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    task::JoinSet,
    time::sleep,
};

use crate::harness::{
    child::Serving,
    fleet::coordinator_address,
    http::{Connection, request},
    load::{Seen, on_own_core},
    machine,
    scale::Scale,
    serving::{Serve, coordinator_path},
    stats::{At, Findings, spread},
};

const POLLS: usize = 1000;
/// How many memberships change every second.
const CHANGES: u32 = 50;
/// How long the polls have to arrive.
const ARRIVAL: Duration = Duration::from_secs(2);
const SUBJECT: &str = "endpoint";
const CPU: &str = "processor time of the server while nothing changes";
const CPU_LIMIT: f64 = 5.0;
const ANSWER: &str = "time from a change to the answer";
const ANSWER_LIMIT: f64 = 50.0;

fn at(what: &'static str, unit: &'static str) -> At {
    At {
        benchmark: "B20",
        what,
        unit,
        case: format!("{POLLS} polls"),
        x: POLLS,
    }
}

/// Runs it.
pub fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    for _ in 0..scale.repetitions {
        let server = start(0)?;
        let used = wait_idle(scale, &server)?;
        server.end()?;
        found.add(&at(CPU, "% of a core"), SUBJECT, used);
        let server = start(CHANGES)?;
        let seen = wait_for_changes(scale, server.addresses.product)?;
        server.end()?;
        let (median, p99) = (seen.quantile(0.5), seen.quantile(0.99));
        found.add_many(&at(ANSWER, "ms"), SUBJECT, median, p99);
    }
    judge(found)
}

fn start(memberships: u32) -> Result<Serving> {
    Serving::start(Serve {
        jobs: POLLS,
        replicas: 9,
        events: 0,
        memberships,
    })
}

fn judge(found: &mut Findings) -> Result<()> {
    let series = |what| found.find("B20", what, &at(what, "").case, SUBJECT);
    let used = series(CPU).context("no processor time was measured")?;
    let used = spread(&used.values).median;
    let answers = series(ANSWER).context("no answer was measured")?;
    let p99 = spread(&answers.p99).median;
    let target = format!("{CPU}, {POLLS} polls: < {CPU_LIMIT} % of a core");
    found.judge("B20", &target, format!("{used:.1} %"), used < CPU_LIMIT);
    let target = format!("{ANSWER}, {POLLS} polls, 99th percentile: < {ANSWER_LIMIT} ms");
    found.judge("B20", &target, format!("{p99:.1} ms"), p99 < ANSWER_LIMIT);
    Ok(())
}

/// A poll of a job's coordinator that knows this generation.
fn poll_request(job: usize, known: i64) -> Vec<u8> {
    let path = coordinator_path(job).replace("v1alpha1", "v1alpha2");
    request("GET", &format!("{path}&generation={known}&wait=30s"), "")
}

/// Processor time of the server in percent of a core while all polls wait.
fn wait_idle(scale: &Scale, server: &Serving) -> Result<f64> {
    let (to, id, lasting) = (server.addresses.product, server.id(), scale.storm);
    let seen = on_own_core(async move {
        let mut polls = JoinSet::new();
        for job in 0..POLLS {
            let mut connection = Connection::open(coordinator_address(job), to).await?;
            polls.spawn(async move {
                connection.call(&poll_request(job, 1)).await?;
                anyhow::Ok(())
            });
        }
        sleep(ARRIVAL).await;
        let (before, began) = (machine::usage(id)?.cpu, Instant::now());
        sleep(lasting).await;
        let used = machine::usage(id)?.cpu - before;
        let seconds = began.elapsed().as_secs_f64();
        ensure!(polls.try_join_next().is_none(), "a poll did not wait");
        Ok(Seen {
            times: vec![used / seconds * 100.0],
            seconds,
            ..Seen::default()
        })
    })?;
    Ok(seen.quantile(0.0))
}

/// The time from each change to its answer.
fn wait_for_changes(scale: &Scale, to: SocketAddr) -> Result<Seen> {
    let lasting = ARRIVAL + scale.storm;
    on_own_core(async move {
        let (sender, mut times) = unbounded_channel();
        let mut polls = JoinSet::new();
        for job in 0..POLLS {
            polls.spawn(follow(job, to, sender.clone()));
        }
        sleep(lasting).await;
        ensure!(polls.try_join_next().is_none(), "a poll failed");
        let mut seen = Seen {
            seconds: lasting.as_secs_f64(),
            ..Seen::default()
        };
        while let Ok(time) = times.try_recv() {
            seen.times.push(time);
        }
        Ok(seen)
    })
}

/// Polls again and again. The generation of a change is its time, in microseconds.
async fn follow(job: usize, to: SocketAddr, times: UnboundedSender<f64>) -> Result<()> {
    let mut connection = Connection::open(coordinator_address(job), to).await?;
    let mut known = 1;
    loop {
        let sent = Timestamp::now().as_microsecond();
        let body = connection.call(&poll_request(job, known)).await?;
        let answered = Timestamp::now().as_microsecond();
        let body: Value = serde_json::from_slice(body)?;
        let generation = body["data"]["generation"].as_i64();
        known = generation.context("an answer has no generation")?;
        // The first change may be older than the poll.
        if known > sent {
            #[allow(clippy::cast_precision_loss)]
            let took = (answered - known) as f64 / 1e3;
            times.send(took).ok();
        }
    }
}
