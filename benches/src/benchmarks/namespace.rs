//! B3: a list of a whole namespace.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use crate::harness::{
    child::Serving,
    fleet::{Fleet, coordinator_address},
    http::{Connection, request},
    load::{Caller, closed},
    original::Answer,
    scale::Scale,
    serving::{Filled, Serve, get_bytes, namespace_path},
    stats::{At, Findings, Limit, spread},
};

const OURS: &str = "endpoint";
const BARE: &str = "bare serialization of that answer";
const ORIGINAL: &str = "original: a scan of all pods for each job";
const OVER_HTTP: &str = "list of a namespace, over HTTP";
const IN_PROCESS: &str = "list of a namespace, without connection";

fn at(what: &'static str, fleet: Fleet) -> At {
    let (jobs, x) = (fleet.jobs, fleet.pods());
    let case = format!("{jobs} jobs of {} replicas", fleet.replicas);
    At {
        benchmark: "B3",
        what,
        unit: "ms",
        case,
        x,
    }
}

/// Runs it.
pub async fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    for &jobs in &scale.listed_jobs {
        let fleet = Fleet { jobs, replicas: 10 };
        over_http(fleet, scale, found).await?;
        in_process(fleet, scale, found).await?;
        for what in [OVER_HTTP, IN_PROCESS] {
            found.compare(&at(what, fleet), OURS, BARE, Limit::AtMost(2.0));
        }
    }
    Ok(())
}

async fn over_http(fleet: Fleet, scale: &Scale, found: &mut Findings) -> Result<()> {
    let Fleet { jobs, replicas } = fleet;
    let server = Serving::start(Serve {
        jobs,
        replicas,
        events: 0,
        memberships: 0,
    })?;
    let caller = Caller {
        from: coordinator_address(0),
        request: request("GET", &namespace_path(), ""),
    };
    for repetition in 0..=scale.repetitions {
        let of = &server.addresses;
        for (subject, to) in [(OURS, of.product), (BARE, of.serialized)] {
            let seen = closed(vec![caller.clone()], to, scale.closed_loop)?;
            if repetition > 0 {
                let p99 = seen.quantile(0.99);
                found.add_many(&at(OVER_HTTP, fleet), subject, seen.quantile(0.5), p99);
            }
        }
        if repetition == 1 {
            let mut connection = Connection::open(caller.from, of.original).await?;
            let began = Instant::now();
            connection.call(&caller.request).await?;
            let took = began.elapsed().as_secs_f64() * 1e3;
            found.add(&at(OVER_HTTP, fleet), ORIGINAL, took);
        }
    }
    server.end()?;
    Ok(())
}

async fn in_process(fleet: Fleet, scale: &Scale, found: &mut Findings) -> Result<()> {
    let filled = Filled::new(fleet)?;
    let endpoint = di_replicas::Endpoint::new(filled.state.clone());
    let path = namespace_path();
    let answer: Value = serde_json::from_slice(&filled.answer(&path).await?)?;
    let answer = Answer::typed(&answer)?;
    for repetition in 0..=scale.repetitions {
        let mut times = [Vec::new(), Vec::new()];
        let began = Instant::now();
        while began.elapsed() < scale.closed_loop {
            let start = Instant::now();
            get_bytes(&endpoint, &path).await?;
            let between = Instant::now();
            serde_json::to_vec(&answer)?;
            times[0].push(milliseconds(between - start));
            times[1].push(milliseconds(between.elapsed()));
        }
        if repetition > 0 {
            for (subject, times) in [OURS, BARE].into_iter().zip(times) {
                found.add(&at(IN_PROCESS, fleet), subject, spread(&times).median);
            }
        }
    }
    Ok(())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
