//! B4: a thousand coordinators poll once a second while pods change.

use std::time::Duration;

use anyhow::Result;

use crate::{
    benchmarks::get::coordinators,
    harness::{
        child::Serving,
        fleet::Fleet,
        load::open,
        scale::Scale,
        serving::Serve,
        stats::{At, Findings, spread},
    },
};

const EVENTS: u32 = 20;
/// How long they poll before it counts.
const WARM_UP: Duration = Duration::from_secs(1);
const HOW: [(&str, bool); 2] = [
    ("endpoint, a connection for each poll", false),
    ("endpoint, connections kept", true),
];
const MEDIAN: &str = "answer to a poll, from when it was due";
const CPU: &str = "processor time of the server";

/// Runs it.
pub fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    for &jobs in &scale.pollers {
        poll(Fleet { jobs, replicas: 10 }, scale, found)?;
    }
    Ok(())
}

fn poll(fleet: Fleet, scale: &Scale, found: &mut Findings) -> Result<()> {
    let case = format!("{} coordinators, {EVENTS} pod events a second", fleet.jobs);
    let at = |what, unit| At {
        benchmark: "B4",
        what,
        unit,
        case: case.clone(),
        x: fleet.jobs,
    };
    let Fleet { jobs, replicas } = fleet;
    let server = Serving::start(Serve {
        jobs,
        replicas,
        events: EVENTS,
        memberships: 0,
    })?;
    let mut errors = 0;
    for _ in 0..scale.repetitions {
        for (subject, keep) in HOW {
            let callers = coordinators(jobs, jobs);
            let to = server.addresses.product;
            open(callers.clone(), to, WARM_UP, keep)?;
            let before = server.usage()?.cpu;
            let seen = open(callers, to, scale.storm, keep)?;
            let used = (server.usage()?.cpu - before) / seen.seconds;
            errors += seen.errors;
            found.add_many(
                &at(MEDIAN, "ms"),
                subject,
                seen.quantile(0.5),
                seen.quantile(0.99),
            );
            found.add(&at(CPU, "% of a core"), subject, used * 100.0);
        }
    }
    server.end()?;
    for (subject, _) in HOW {
        let series = found.find("B4", MEDIAN, &case, subject);
        let p99 = spread(series.map_or(&[][..], |series| &series.p99));
        let measured = format!("{:.2} ms ({:.2} to {:.2})", p99.median, p99.least, p99.most);
        let target = format!("99th percentile below 10 ms, {jobs} coordinators, {subject}");
        found.judge("B4", &target, measured, p99.median < 10.0);
    }
    found.judge(
        "B4",
        &format!("no error, {jobs} coordinators"),
        format!("{errors} errors"),
        errors == 0,
    );
    Ok(())
}
