//! B2: coordinators ask for their lists, as fast as they are answered.

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use crate::harness::{
    child::Serving,
    fleet::{Fleet, coordinator_address},
    http::request,
    load::{Caller, closed},
    scale::Scale,
    serving::{Addresses, Serve, coordinator_path},
    stats::{At, Findings, Limit, spread},
};

const RATE: &str = "lists of one coordinator per second and core";
const OURS: &str = "endpoint";
const READY_MADE: &str = "handler of ready-made bytes";
const ORIGINAL: &str = "original: a scan of all pods";
/// With this many clients the server is busy all the time, and the target is stricter.
const MOST_CLIENTS: usize = 64;
/// A job with many replicas: its list is long.
const LARGE: Fleet = Fleet {
    jobs: 10,
    replicas: 999,
};

type Address = fn(&Addresses) -> SocketAddr;
const SUBJECTS: [(&str, Address); 3] = [
    (OURS, |of| of.product),
    (READY_MADE, |of| of.ready_made),
    (ORIGINAL, |of| of.original),
];

fn at(case: &str, clients: usize, pods: usize) -> At {
    let case = format!("{case}, {clients} clients");
    At {
        benchmark: "B2",
        what: RATE,
        unit: "requests/s",
        case,
        x: pods,
    }
}

/// Callers that are coordinators of different jobs, as far as there are.
pub fn coordinators(many: usize, jobs: usize) -> Vec<Caller> {
    let caller = |i: usize| Caller {
        from: coordinator_address(i % jobs),
        request: request("GET", &coordinator_path(i % jobs), ""),
    };
    (0..many).map(caller).collect()
}

/// Runs it.
pub fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let mut cases: Vec<(String, Fleet)> = Vec::new();
    for &pods in &scale.cached {
        cases.push((format!("{pods} pods"), Fleet::of_pods(pods)));
    }
    cases.push((format!("{} pods in jobs of 1000", LARGE.pods()), LARGE));
    let mut servers = Vec::new();
    for (case, fleet) in &cases {
        let Fleet { jobs, replicas } = *fleet;
        let server = Serving::start(Serve {
            jobs,
            replicas,
            events: 0,
            memberships: 0,
        })?;
        servers.push((case, *fleet, server));
    }
    for _ in 0..scale.repetitions {
        for &clients in &scale.clients {
            for (case, fleet, server) in &servers {
                for (subject, address) in SUBJECTS {
                    let callers = coordinators(clients, fleet.jobs);
                    let seen = closed(callers, address(&server.addresses), scale.closed_loop)?;
                    let at = at(case, clients, fleet.pods());
                    found.add_many(&at, subject, seen.rate(), seen.quantile(0.99));
                }
            }
        }
    }
    let mut asked = 0;
    for (.., server) in servers {
        asked += server.end()?;
    }
    judge(scale, &cases, asked, found)
}

fn judge(scale: &Scale, cases: &[(String, Fleet)], asked: u64, found: &mut Findings) -> Result<()> {
    for &clients in &scale.clients {
        for (case, fleet) in cases {
            let at = at(case, clients, fleet.pods());
            let least = if clients == MOST_CLIENTS { 0.8 } else { 0.5 };
            found.compare(&at, OURS, READY_MADE, Limit::AtLeast(least));
        }
        let rates = scale.cached.iter().filter_map(|pods| {
            let at = at(&format!("{pods} pods"), clients, *pods);
            let series = found.find(at.benchmark, at.what, &at.case, OURS)?;
            Some(spread(&series.values).median)
        });
        let rates: Vec<f64> = rates.collect();
        ensure!(!rates.is_empty(), "nothing was measured");
        let spread = spread(&rates);
        let within = spread.most / spread.least - 1.0;
        found.judge(
            "B2",
            &format!("flat within 20 % from the fewest to the most pods cached, {clients} clients"),
            format!("{:.0} %", within * 100.0),
            within <= 0.2,
        );
    }
    found.judge(
        "B2",
        "no API request",
        format!("{asked} requests"),
        asked == 0,
    );
    Ok(())
}
