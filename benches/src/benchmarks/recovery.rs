//! B12: faults, and how long after their end all is as it should be.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use di_api::{Phase, names};
use di_apiserver_tests::{ProxyAction, WatchMode};

use crate::{
    benchmarks::cold::fill,
    harness::{
        calls::Call,
        changes::Count,
        cluster::{Cluster, Space},
        fleet::{job_name, manifest},
        kubelet::{Kubelet, succeeded},
        scale::Scale,
        stats::{At, Findings, spread},
        statuses::Statuses,
    },
};

/// Collectors of a job.
const REPLICAS: usize = 4;
/// How long a fault lasts.
const FAULT: Duration = Duration::from_secs(3);
const WHAT: &str = "time until a job that came and one that ended meanwhile are looked after";
const OURS: &str = "manager";
const KILLED: &str = "the manager is killed, and started again at once";
const SUCCEEDED: &str = "the manager is killed, and another takes over";
const CUT: &str = "watches are cut";
const EXPIRED: &str = "watches get 410 Gone";
const RESTARTED: &str = "the API server is killed, and started again";
const REFUSED: &str = "every fourth request is refused";

/// Seconds after which all must be as it should be.
fn most(case: &str) -> f64 {
    // The lease of the one that is gone must run out first.
    if case == SUCCEEDED { 15.0 } else { 5.0 }
}

/// Runs it.
pub async fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let space = cluster.space().await?;
    let (proxy, kubeconfig) = cluster.proxy()?;
    let mut name = "manager".to_owned();
    let (mut manager, _) = cluster.manager_called(&name, &kubeconfig).await?;
    let _kubelet = Kubelet::start(&space)?;
    // One of them ends with each fault.
    fill(&space, scale.recovering_jobs, REPLICAS).await?;
    let mut meanwhile = Meanwhile { space, number: 0 };
    for round in 0..scale.recoveries {
        let pending = meanwhile.begin().await?;
        drop(manager);
        let ended = Instant::now();
        (manager, _) = cluster.manager_called(&name, &kubeconfig).await?;
        add(found, KILLED, pending, ended).await?;

        name = format!("other-{round}");
        let (other, _) = cluster.manager_called(&name, &kubeconfig).await?;
        let pending = meanwhile.begin().await?;
        drop(manager);
        add(found, SUCCEEDED, pending, Instant::now()).await?;
        manager = other;

        for (case, watches) in [(CUT, WatchMode::Cut), (EXPIRED, WatchMode::Expired)] {
            proxy.set_watches(watches);
            let pending = meanwhile.begin().await?;
            tokio::time::sleep(FAULT).await;
            proxy.set_watches(WatchMode::Flow);
            add(found, case, pending, Instant::now()).await?;
        }

        let came = AtomicUsize::new(0);
        proxy.set_rule(move |_| match came.fetch_add(1, Relaxed) % 4 {
            3 => ProxyAction::Rejected(500),
            _ => ProxyAction::Served,
        });
        let pending = meanwhile.begin().await?;
        tokio::time::sleep(FAULT).await;
        proxy.set_rule(|_| ProxyAction::Served);
        add(found, REFUSED, pending, Instant::now()).await?;

        cluster.restart().await;
        let ended = Instant::now();
        let pending = meanwhile.begin().await?;
        add(found, RESTARTED, pending, ended).await?;
    }
    for case in [KILLED, SUCCEEDED, CUT, EXPIRED, REFUSED, RESTARTED] {
        let series = found.find("B12", WHAT, case, OURS);
        let slowest = spread(&series.context("nothing was measured")?.values).most;
        let most = most(case);
        let target = format!("at most {most} s after: {case}");
        found.judge("B12", &target, format!("{slowest:.2} s"), slowest <= most);
    }
    Ok(())
}

async fn add(found: &mut Findings, case: &str, pending: Pending, since: Instant) -> Result<()> {
    let took = pending.over(since).await.with_context(|| case.to_owned())?;
    let at = At {
        benchmark: "B12",
        what: WHAT,
        unit: "s",
        case: case.to_owned(),
        x: 0,
    };
    found.add(&at, OURS, took);
    Ok(())
}

/// The changes during a fault.
struct Meanwhile {
    space: Space,
    number: usize,
}

/// The expected result.
struct Pending {
    pods: Count,
    statuses: Statuses,
    ended: String,
}

impl Meanwhile {
    /// One job comes, and another ends.
    async fn begin(&mut self) -> Result<Pending> {
        let Self { space, number } = self;
        let (came, ended) = (format!("came-{number}"), job_name(*number));
        *number += 1;
        let selector = format!("{}={came}", names::labels::JOB);
        let pods = Count::of(&space.pods(), &selector).await?;
        let statuses = Statuses::of(space);
        let mut job = manifest(&came)?;
        let collector = job.spec.collector.as_mut().context("no collectors")?;
        collector.replicas = i32::try_from(REPLICAS)?;
        let create = Call::create(&space.jobs_path(), &job)?;
        create.make(&space.client).await?;
        let coordinator = names::coordinator_name(&ended);
        let end = Call::status(&space.pods_path(), &coordinator, &succeeded()?)?;
        end.make(&space.client).await?;
        Ok(Pending {
            pods,
            statuses,
            ended,
        })
    }
}

impl Pending {
    /// Waits until all of it has come, and returns how many seconds after this that was.
    async fn over(self, since: Instant) -> Result<f64> {
        self.pods.until(|seen| seen.added.len() > REPLICAS).await?;
        let has_ended = self.statuses.until("the job ends", |seen| {
            let status = seen.last.get(&self.ended);
            status.is_some_and(|status| status.phase == Some(Phase::Succeeded))
        });
        has_ended.await?;
        Ok(since.elapsed().as_secs_f64())
    }
}
