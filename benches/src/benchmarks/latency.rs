//! B7: one job at a time, while nothing else happens.

use std::time::{Duration, Instant};

use anyhow::Result;
use di_api::names;

use crate::{
    benchmarks::post::creates,
    harness::{
        calls::Call,
        changes::Count,
        cluster::{Cluster, Space},
        scale::Scale,
        stats::{At, Findings, quantile},
    },
};

const WHAT: &str = "time until a watch shows the pod";
const OURS: &str = "job created, its coordinator seen";
const PLAIN: &str = "pod created, and seen";
/// How much more than a bare create the slowest of a hundred may take, in milliseconds.
const MOST: f64 = 25.0;
/// The further work for a job is done within this time.
const PAUSE: Duration = Duration::from_millis(300);

/// Runs it.
pub async fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let cluster = Cluster::start().await?;
    let _manager = cluster.manager().await?;
    let space = cluster.space().await?;
    for number in 0..3 {
        coordinator(&space, &format!("first-{number}")).await?;
    }
    let at = At {
        benchmark: "B7",
        what: WHAT,
        unit: "ms",
        case: "nothing else happens".to_owned(),
        x: 0,
    };
    let pods = creates(&space, scale.single_jobs)?;
    for (number, pod) in pods.into_iter().enumerate() {
        tokio::time::sleep(PAUSE).await;
        let took = coordinator(&space, &format!("job-{number}")).await?;
        found.add(&at, OURS, took);
        tokio::time::sleep(PAUSE).await;
        let took = bare(&space, pod).await?;
        found.add(&at, PLAIN, took);
    }
    let p99 = |found: &Findings, subject: &str| {
        let series = found.find("B7", WHAT, &at.case, subject);
        let mut values = series.map_or(Vec::new(), |series| series.values.clone());
        values.sort_by(f64::total_cmp);
        quantile(&values, 0.99)
    };
    let (ours, plain) = (p99(found, OURS), p99(found, PLAIN));
    found.judge(
        "B7",
        &format!("p99 from a job to its coordinator at most {MOST} ms over that of a bare create"),
        format!("{ours:.1} ms, {plain:.1} ms"),
        ours <= plain + MOST,
    );
    space.clear().await
}

/// Creates a job, and returns after how many milliseconds its coordinator was seen.
pub async fn coordinator(space: &Space, job: &str) -> Result<f64> {
    let selector = format!(
        "{}={job},{}=coordinator",
        names::labels::JOB,
        names::labels::ROLE
    );
    let pods = Count::of(&space.pods(), &selector).await?;
    let began = Instant::now();
    space.create(job).await?;
    let seen = pods.until(|seen| !seen.added.is_empty()).await?;
    Ok(seen.took(began).0)
}

async fn bare(space: &Space, pod: Call) -> Result<f64> {
    let pods = Count::of(&space.pods(), &format!("{}=plain", names::labels::JOB)).await?;
    let began = Instant::now();
    pod.make(&space.client).await?;
    let seen = pods.until(|seen| !seen.added.is_empty()).await?;
    Ok(seen.took(began).0)
}
