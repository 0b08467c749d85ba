//! B8: start of the manager in a cluster with many jobs.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::try_join;
use kube::{Api, Resource, api::ListParams};
use serde::de::DeserializeOwned;

use crate::{
    benchmarks::burst::{AT_ONCE, jobs, runs},
    harness::{
        calls::make_all,
        cluster::{Cluster, Space},
        http::{Connection, request},
        kubelet::Kubelet,
        scale::{PATIENCE, Scale},
        stats::{At, Findings, Limit, spread},
        statuses::Statuses,
    },
};

/// Collectors of a job.
const REPLICAS: usize = 9;
const READY: &str = "time until every job was reconciled";
const PEAK: &str = "most resident memory by then";
const OURS: &str = "manager";
const LIST: &str = "lists of jobs, pods and services at the same time, 500 a page";
const PAGE: u32 = 500;
/// Writes that follow from a start would come within this time.
const REST: Duration = Duration::from_secs(3);

fn at(what: &'static str, unit: &'static str, jobs: usize) -> At {
    let pods = jobs * (REPLICAS + 1);
    At {
        benchmark: "B8",
        what,
        unit,
        case: format!("{jobs} jobs, {pods} pods, {pods} services"),
        x: jobs,
    }
}

/// Runs it.
pub async fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let cluster = Cluster::start().await?;
    let number = scale.cold_jobs;
    let space = settled(&cluster, number, REPLICAS).await?;
    let mut writes = Vec::new();
    for repetition in 0..=scale.repetitions {
        let before = cluster.writes(&space).await.len();
        let began = Instant::now();
        let (process, health) = cluster.manager_by(cluster.kubeconfig()).await?;
        looked(health, number).await?;
        let took = began.elapsed().as_secs_f64();
        let peak = process.usage()?.peak;
        tokio::time::sleep(REST).await;
        drop(process);
        writes.extend(cluster.writes(&space).await.split_off(before));
        let listed = list_all(&space).await?;
        if repetition > 0 {
            found.add(&at(READY, "s", number), OURS, took);
            found.add(&at(READY, "s", number), LIST, listed);
            found.add(&at(PEAK, "MiB", number), OURS, peak);
        }
    }
    let peaks = found.find("B8", PEAK, &at(PEAK, "MiB", number).case, OURS);
    let highest = spread(&peaks.context("nothing was measured")?.values).most;
    found.judge(
        "B8",
        "memory below 100 MiB, from the start on",
        format!("{highest:.1} MiB"),
        highest < 100.0,
    );
    let ready = at(READY, "s", number);
    found.compare(&ready, OURS, LIST, Limit::AtMost(1.3));
    found.judge(
        "B8",
        "no writes by a start",
        match writes.first() {
            None => "0".to_owned(),
            Some(first) => format!(
                "{}: {} {} {}",
                writes.len(),
                first.verb,
                first.resource,
                first.name
            ),
        },
        writes.is_empty(),
    );
    Ok(())
}

/// A namespace of running jobs that need no action, without a manager.
async fn settled(cluster: &Cluster, number: usize, collectors: usize) -> Result<Space> {
    let space = cluster.space().await?;
    let _manager = cluster.manager().await?;
    let _kubelet = Kubelet::start(&space)?;
    fill(&space, number, collectors).await?;
    // Their last events.
    tokio::time::sleep(REST).await;
    Ok(space)
}

/// Makes jobs, and waits until they run and there is nothing left to do.
pub async fn fill(space: &Space, number: usize, collectors: usize) -> Result<()> {
    let statuses = Statuses::of(space);
    let calls = jobs(space, number, collectors)?;
    make_all(&space.client, calls, AT_ONCE).await?;
    let run = statuses.until("all jobs run", |seen| {
        seen.are(number, |status| runs(status, collectors))
    });
    run.await
}

/// Waits for this number of reconciles.
async fn looked(health: SocketAddr, jobs: usize) -> Result<()> {
    const METRIC: &str = "di_controller_reconcile_duration_seconds_count ";
    let request = request("GET", "/metrics", "");
    let mut connection = Connection::open([127, 0, 0, 1].into(), health).await?;
    let began = Instant::now();
    loop {
        let text = String::from_utf8_lossy(connection.call(&request).await?).into_owned();
        let count = text.lines().find_map(|line| line.strip_prefix(METRIC));
        let count: usize = count.context("it does not count reconciles")?.parse()?;
        if count >= jobs {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "it looked at {count} jobs only");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Lists everything as a plain client would, and returns how many seconds that took.
async fn list_all(space: &Space) -> Result<f64> {
    let began = Instant::now();
    try_join!(
        list(space.jobs()),
        list(space.pods()),
        list(space.services())
    )?;
    Ok(began.elapsed().as_secs_f64())
}

async fn list<K>(api: Api<K>) -> Result<()>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        match page.metadata.continue_ {
            Some(next) if !next.is_empty() => params.continue_token = Some(next),
            _ => return Ok(()),
        }
    }
}
