//! B11: constantly changing pods, a growing large job next to small jobs, and no changes.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use di_api::names;
use di_apiserver_tests::Write;
use jiff::Timestamp;
use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::{task::JoinSet, time::sleep_until};

use crate::{
    benchmarks::{cold::fill, latency::coordinator},
    harness::{
        calls::Call,
        changes::Count,
        cluster::{Cluster, Space},
        kubelet::{Kubelet, pending, running},
        scale::Scale,
        stats::{At, Findings, quantile},
        statuses::Statuses,
    },
};

/// Collectors of a job.
const REPLICAS: usize = 9;
const PER_SECOND: u32 = 200;
const LAG: &str = "lag of the status behind a pod's change";
const WRITES: &str = "writes of statuses";
const MEMORY: &str = "resident memory of the manager";
const COORDINATOR: &str = "time from a job to its coordinator";
const OURS: &str = "reconciler";
const QUIET: &str = "nothing else happens";
const BUSY: &str = "next to a large job that grows";
/// Statuses that differ in counts only are written this often at most, in milliseconds. Times in the audit log are of the API server.
const APART: f64 = 190.0;
/// Effects of earlier changes last this long.
const REST: Duration = Duration::from_secs(3);

/// Runs it.
pub async fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let cluster = Cluster::start().await?;
    let space = cluster.space().await?;
    let manager = cluster.manager().await?;
    let kubelet = Kubelet::start(&space)?;
    fill(&space, scale.churned_jobs, REPLICAS).await?;
    tokio::time::sleep(REST).await;
    idle(&cluster, &space, scale.idle, found).await?;
    churn(&cluster, &space, scale, found).await?;
    let memory = manager.usage()?.resident;
    let at = at(MEMORY, "MiB", scale);
    found.add(&at, OURS, memory);
    found.judge(
        "B11",
        &format!("memory below 100 MiB, {}", at.case),
        format!("{memory:.1} MiB"),
        memory < 100.0,
    );
    drop(kubelet);
    measure_small_jobs(&cluster, scale, found).await
}

fn at(what: &'static str, unit: &'static str, scale: &Scale) -> At {
    At {
        benchmark: "B11",
        what,
        unit,
        case: format!(
            "{} changes, {PER_SECOND} a second, over {} jobs",
            scale.changes, scale.churned_jobs
        ),
        x: scale.changes,
    }
}

/// No changes.
async fn idle(
    cluster: &Cluster,
    space: &Space,
    long: Duration,
    found: &mut Findings,
) -> Result<()> {
    let writes = cluster.writes(space).await.len();
    let lists = lists(space).await?;
    ensure!(lists > 0.0, "the API server does not count lists");
    tokio::time::sleep(long).await;
    let writes = cluster.writes(space).await.len() - writes;
    let lists = self::lists(space).await? - lists;
    found.judge(
        "B11",
        &format!("neither writes nor lists in {} s of rest", long.as_secs()),
        format!("{writes} writes, {lists} lists"),
        writes == 0 && lists == 0.0,
    );
    Ok(())
}

/// How many lists of what the manager watches the API server has served.
async fn lists(space: &Space) -> Result<f64> {
    const WATCHED: [&str; 5] = ["dijobs", "pods", "services", "nodes", "aggregatorconfigs"];
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = space.client.request_text(request).await?;
    let lists = text.lines().filter(|line| {
        let of = |resource: &&str| line.contains(&format!("resource=\"{resource}\""));
        line.starts_with("apiserver_request_total{")
            && line.contains("verb=\"LIST\"")
            && WATCHED.iter().any(of)
    });
    let counts = lists.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    Ok(counts.sum())
}

/// How a pod changed.
#[derive(Clone, Copy)]
struct Change {
    /// When that was asked for.
    sent: Instant,
    /// When it was answered.
    done: Instant,
    /// How many collectors of its job were ready then.
    ready: usize,
}

async fn churn(
    cluster: &Cluster,
    space: &Space,
    scale: &Scale,
    found: &mut Findings,
) -> Result<()> {
    let before = cluster.writes(space).await.len();
    let collectors = collectors(space).await?;
    let statuses = Statuses::of(space);
    let mut sent = Vec::new();
    let (up, down) = (running(true)?, pending()?);
    let mut calls = JoinSet::new();
    let began = tokio::time::Instant::now() + Duration::from_secs(1);
    for number in 0..scale.changes {
        let due = began + Duration::from_secs(1) / PER_SECOND * u32::try_from(number)?;
        let (job, pods) = collectors
            .iter()
            .nth(number % collectors.len())
            .context("no jobs")?;
        // One after the other is pending, and then one after the other runs again.
        let turn = number / collectors.len() % (2 * REPLICAS);
        let (status, ready) = if turn < REPLICAS {
            (&down, REPLICAS - turn - 1)
        } else {
            (&up, turn - REPLICAS + 1)
        };
        let call = Call::status(&space.pods_path(), &pods[turn % REPLICAS], status)?;
        sleep_until(due).await;
        sent.push((job, Instant::now(), ready));
        let client = space.client.clone();
        calls.spawn(async move {
            call.make(&client).await?;
            anyhow::Ok((number, Instant::now()))
        });
    }
    let mut done = BTreeMap::new();
    while let Some(call) = calls.join_next().await {
        let (number, at) = call??;
        done.insert(number, at);
    }
    let mut changes: BTreeMap<&String, Vec<Change>> = BTreeMap::new();
    for ((job, sent, ready), done) in sent.into_iter().zip(done.into_values()) {
        changes
            .entry(job)
            .or_default()
            .push(Change { sent, done, ready });
    }
    tokio::time::sleep(REST).await;

    let came = statuses.seen().came;
    let lags: Vec<f64> = changes
        .iter()
        .flat_map(|(job, changes)| {
            let came = came.iter().filter(|(_, of, _)| of == *job);
            let came: Vec<(Instant, usize)> = came.map(|(at, _, ready)| (*at, *ready)).collect();
            lags(changes, &came)
        })
        .collect();
    let mut sorted = lags;
    sorted.sort_by(f64::total_cmp);
    let lost = scale.changes - sorted.len();
    let p99 = quantile(&sorted, 0.99);
    found.add_many(&at(LAG, "ms", scale), OURS, quantile(&sorted, 0.5), p99);
    found.judge(
        "B11",
        "p99 of that lag at most 1 s",
        format!("{p99:.0} ms, {lost} changes never shown"),
        p99 <= 1000.0 && lost == 0,
    );

    let writes = cluster.writes(space).await.split_off(before);
    judge_writes(&writes, scale, found)
}

/// How many writes of statuses there were, and how far apart.
fn judge_writes(writes: &[Write], scale: &Scale, found: &mut Findings) -> Result<()> {
    let mut of_jobs: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
    for write in writes
        .iter()
        .filter(|write| write.resource == "dijobs/status")
    {
        of_jobs
            .entry(write.name.clone())
            .or_default()
            .push(write.received.parse()?);
    }
    let number: usize = of_jobs.values().map(Vec::len).sum();
    let apart = of_jobs.values_mut().flat_map(|times| {
        times.sort();
        times
            .windows(2)
            .map(|two| (two[1] - two[0]).total(jiff::Unit::Millisecond))
            .collect::<Vec<_>>()
    });
    let least = apart.filter_map(Result::ok).fold(f64::INFINITY, f64::min);
    #[allow(clippy::cast_precision_loss)]
    found.add(&at(WRITES, "writes", scale), OURS, number as f64);
    #[allow(clippy::cast_precision_loss)]
    found.add(
        &at(WRITES, "writes", scale),
        "one for each change",
        scale.changes as f64,
    );
    found.judge(
        "B11",
        "at most one write of a job's status in 200 ms",
        format!(
            "{number} writes for {} changes, two of a job at least {least:.0} ms apart",
            scale.changes
        ),
        number <= scale.changes && least >= APART,
    );
    Ok(())
}

/// Collectors by job.
async fn collectors(space: &Space) -> Result<BTreeMap<String, Vec<String>>> {
    let mut of_jobs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let selector = format!("{}=collector", names::labels::ROLE);
    for pod in space
        .pods()
        .list_metadata(&ListParams::default().labels(&selector))
        .await?
    {
        let job = pod.labels().get(names::labels::JOB).cloned();
        of_jobs
            .entry(job.unwrap_or_default())
            .or_default()
            .push(pod.name_any());
    }
    Ok(of_jobs)
}

/// How many milliseconds each change took until a status counted it: one that counts as many as were ready then or later.
fn lags(changes: &[Change], came: &[(Instant, usize)]) -> Vec<f64> {
    let mut lags = Vec::new();
    let mut shown = 0;
    for (at, ready) in came {
        // Counts go one step at a time, so of the last few none is like another but at a turn.
        let candidates = changes[shown..]
            .iter()
            .take_while(|change| change.sent <= *at);
        let last = candidates
            .enumerate()
            .filter(|(_, change)| change.ready == *ready)
            .last();
        let Some((place, _)) = last else {
            continue;
        };
        for change in &changes[shown..=shown + place] {
            lags.push(at.saturating_duration_since(change.done).as_secs_f64() * 1e3);
        }
        shown += place + 1;
    }
    lags
}

/// Small jobs, one at a time, before and while a large one grows.
async fn measure_small_jobs(cluster: &Cluster, scale: &Scale, found: &mut Findings) -> Result<()> {
    let space = cluster.space().await?;
    let at = At {
        benchmark: "B11",
        what: COORDINATOR,
        unit: "ms",
        case: format!("a large job of {} collectors", scale.large_job),
        x: scale.large_job,
    };
    let (mut quiet, mut busy) = (Vec::new(), Vec::new());
    for round in 0..scale.large_rounds {
        for number in 0..scale.small_jobs {
            quiet.push(coordinator(&space, &format!("quiet-{round}-{number}")).await?);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let large = format!("large-{round}");
        space.settled_job(&large).await?;
        let selector = format!("{}={large}", names::labels::JOB);
        let services = Count::of(&space.services(), &selector).await?;
        let grow = Patch::Merge(json!({"spec": {"collector": {"replicas": scale.large_job}}}));
        let params = PatchParams::default();
        space.jobs().patch(&large, &params, &grow).await?;
        for number in 0.. {
            if services.seen().added.len() >= scale.large_job {
                break;
            }
            busy.push(coordinator(&space, &format!("busy-{round}-{number}")).await?);
        }
    }
    let p99 = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        (quantile(values, 0.5), quantile(values, 0.99))
    };
    let (quiet, busy) = (p99(&mut quiet), p99(&mut busy));
    found.add_many(&at, QUIET, quiet.0, quiet.1);
    found.add_many(&at, BUSY, busy.0, busy.1);
    let ratio = busy.1 / quiet.1;
    found.judge(
        "B11",
        &format!("p99 from a small job to its coordinator at most 3x {BUSY}"),
        format!("{ratio:.2}x ({:.0} ms, {:.0} ms)", busy.1, quiet.1),
        ratio <= 3.0,
    );
    space.clear().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_shows_its_last_change_and_earlier_ones() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let change = |ms, ready| Change {
            sent: at(ms),
            done: at(ms + 10),
            ready,
        };
        let changes = [change(0, 8), change(100, 7), change(200, 6)];
        let came = [(at(50), 9), (at(150), 7), (at(230), 6), (at(900), 6)];
        assert_eq!(lags(&changes, &came), [140.0, 40.0, 20.0]);
    }
}
