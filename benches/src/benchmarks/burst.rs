//! B6: many jobs at once: created, run, and ended.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use di_api::{DIJobStatus, Origin, Phase, PlanEntry, Role, names};

use crate::harness::{
    calls::{Call, make_all},
    changes::Count,
    cluster::{Cluster, Space},
    fleet::{job_name, manifest, new_pods},
    kubelet::{Kubelet, succeeded},
    original::Throttle,
    scale::Scale,
    stats::{At, Findings, Limit},
    statuses::{Statuses, ready},
};

/// Collectors of a job.
const REPLICAS: usize = 10;
/// Pods of a job, with its coordinator. As many services.
const PODS: usize = REPLICAS + 1;
const RATE: &str = "pods, with their services, per second";
const COORDINATORS: &str = "time until all coordinators and their services are there";
const ALL: &str = "time until all pods and services are there";
const RUN: &str = "time until all run and are counted, once the kubelet starts";
const END: &str = "time until all have ended and nothing but coordinators is left";
const WRITES: &str = "writes for a job, over its life";
const PEAK: &str = "most resident memory of the manager";
const OURS: &str = "reconciler";
const PARALLEL: [(usize, &str); 2] = [
    (8, "plain creates, 8 at once"),
    (32, "plain creates, 32 at once"),
];
const ONE_BY_ONE: &str = "original, without its throttle";
const THROTTLED: &str = "original, 20 a second after 30";
/// Writes of a job without those of its pods and services.
const MOST_WRITES: f64 = 5.0;
/// The last counts and events of jobs that have ended come within this time.
const REST: Duration = Duration::from_secs(3);
pub const AT_ONCE: usize = 32;

fn at(what: &'static str, unit: &'static str, jobs: usize) -> At {
    At {
        benchmark: "B6",
        what,
        unit,
        case: format!("{jobs} jobs of {REPLICAS} collectors"),
        x: jobs,
    }
}

/// Runs it.
pub async fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let cluster = Cluster::start().await?;
    let manager = cluster.manager().await?;
    // So that it leads, and its connections are open.
    let space = cluster.space().await?;
    space.settled_job("first").await?;
    space.clear().await?;
    for &jobs in &scale.burst {
        for _ in 0..scale.bursts {
            ours(&cluster, jobs, found).await?;
            for (at_once, subject) in PARALLEL {
                plain(&cluster, jobs, at_once, subject, found).await?;
            }
        }
        let peak = manager.usage()?.peak;
        found.add(&at(PEAK, "MiB", jobs), OURS, peak);
        for (_, plain) in PARALLEL {
            let rate = at(RATE, "pods/s", jobs);
            found.compare(&rate, OURS, plain, Limit::AtLeast(0.8));
        }
    }
    for subject in [ONE_BY_ONE, THROTTLED] {
        plain(&cluster, scale.throttled_burst, 1, subject, found).await?;
    }
    Ok(())
}

/// Creates of jobs with this number of collectors each.
pub fn jobs(space: &Space, jobs: usize, collectors: usize) -> Result<Vec<Call>> {
    let calls = (0..jobs).map(|number| {
        let mut job = manifest(&job_name(number))?;
        let collector = job.spec.collector.as_mut().context("no collectors")?;
        collector.replicas = i32::try_from(collectors)?;
        Call::create(&space.jobs_path(), &job)
    });
    calls.collect()
}

/// Whether a job runs with all its collectors, and that is counted.
pub fn runs(status: &DIJobStatus, collectors: usize) -> bool {
    status.phase == Some(Phase::Running)
        && status.plan.len() == collectors
        && ready(status) == collectors
        && status.plan.iter().all(|entry| entry.uid.is_some())
}

#[allow(clippy::cast_precision_loss)]
async fn ours(cluster: &Cluster, number: usize, found: &mut Findings) -> Result<()> {
    let space = cluster.space().await?;
    let calls = jobs(&space, number, REPLICAS)?;
    let ours = names::labels::SELECTOR;
    let first = format!("{}=coordinator", names::labels::ROLE);
    let pods = Count::of(&space.pods(), ours).await?;
    let services = Count::of(&space.services(), ours).await?;
    let coordinators = Count::of(&space.pods(), &first).await?;
    let reachable = Count::of(&space.services(), &first).await?;
    let statuses = Statuses::of(&space);

    let began = Instant::now();
    make_all(&space.client, calls, AT_ONCE).await?;
    let all = number * PODS;
    let pods = pods
        .until(|seen| seen.added.len() >= all)
        .await?
        .took(began);
    let served = services.until(|seen| seen.added.len() >= all).await?;
    let took = pods.0.max(served.took(began).0);
    let first = coordinators
        .until(|seen| seen.added.len() >= number)
        .await?;
    let first = first.took(began);
    let second = reachable.until(|seen| seen.added.len() >= number).await?;
    let second = second.took(began);
    found.add(&at(RATE, "pods/s", number), OURS, all as f64 / took * 1e3);
    let (last, p99) = (first.0.max(second.0), first.1.max(second.1));
    found.add_many(&at(COORDINATORS, "ms", number), OURS, last, p99);
    found.add(&at(ALL, "ms", number), OURS, took);

    let began = Instant::now();
    let _kubelet = Kubelet::start(&space)?;
    let counted = |status: &DIJobStatus| runs(status, REPLICAS);
    let running = statuses.until("all jobs run", |seen| seen.are(number, counted));
    running.await?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    found.add(&at(RUN, "ms", number), OURS, took);

    let status = succeeded()?;
    let path = space.pods_path();
    let ends = (0..number).map(|number| {
        let coordinator = names::coordinator_name(&job_name(number));
        Call::status(&path, &coordinator, &status)
    });
    let ends = ends.collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    make_all(&space.client, ends, AT_ONCE).await?;
    services.until(|seen| seen.deleted.len() >= all).await?;
    let over =
        |status: &DIJobStatus| status.phase == Some(Phase::Succeeded) && status.plan.is_empty();
    let ended = statuses.until("all jobs end", |seen| seen.are(number, over));
    ended.await?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    found.add(&at(END, "ms", number), OURS, took);

    tokio::time::sleep(REST).await;
    let writes = cluster.writes(&space).await;
    let objects = |resource: &str| matches!(resource, "pods" | "services");
    let events = |resource: &str| resource == "events";
    let each = |of: &dyn Fn(&str) -> bool| {
        let of = writes.iter().filter(|write| of(&write.resource)).count();
        of as f64 / number as f64
    };
    let rest = each(&|resource| !objects(resource) && !events(resource));
    let (objects, events) = (each(&objects), each(&events));
    for (subject, value) in [
        ("status", rest),
        ("events", events),
        ("pods and services", objects),
    ] {
        found.add(&at(WRITES, "writes", number), subject, value);
    }
    found.judge(
        "B6",
        &format!("at most {MOST_WRITES} writes for a job beyond its pods, services and events, over its life, {number} jobs"),
        format!("{rest:.1}; with events {:.1}", rest + events),
        rest <= MOST_WRITES,
    );
    space.clear().await
}

/// The same pods and services, of unknown jobs.
#[allow(clippy::cast_precision_loss)]
async fn plain(
    cluster: &Cluster,
    number: usize,
    at_once: usize,
    subject: &str,
    found: &mut Findings,
) -> Result<()> {
    let space = cluster.space().await?;
    let mut calls = Vec::new();
    for number in 0..number {
        let mut job = manifest(&job_name(number))?;
        job.metadata.namespace = Some(space.name.clone());
        job.metadata.uid = Some("00000000-0000-4000-8000-000000000000".to_owned());
        let name = names::coordinator_name(&job_name(number));
        let coordinator = PlanEntry::new(name, Role::Coordinator, Origin::Declared, 0);
        let collector = |i: i32| {
            let name = names::replica_name(&job_name(number), Role::Collector, &format!("{i:05}"));
            PlanEntry::new(name, Role::Collector, Origin::Declared, i)
        };
        let collectors: Vec<_> = (0..i32::try_from(REPLICAS)?).map(collector).collect();
        job.status
            .get_or_insert_default()
            .plan
            .clone_from(&collectors);
        for pod in new_pods(&job) {
            calls.push(Call::create(&space.pods_path(), &pod)?);
        }
        for entry in std::iter::once(&coordinator).chain(&collectors) {
            let service = di_plan::build_service(&job, entry);
            calls.push(Call::create(&space.services_path(), &service)?);
        }
    }
    let mut throttle = (subject == THROTTLED).then(Throttle::of_the_reconciler);
    // Seen as the reconciler's are, for that takes its part of the machine.
    let ours = names::labels::SELECTOR;
    let pods = Count::of(&space.pods(), ours).await?;
    let services = Count::of(&space.services(), ours).await?;
    let began = Instant::now();
    if at_once == 1 {
        for call in calls {
            if let Some(throttle) = &mut throttle {
                throttle.wait().await;
            }
            call.make(&space.client).await?;
        }
    } else {
        make_all(&space.client, calls, at_once).await?;
    }
    let all = number * PODS;
    let pods = pods.until(|seen| seen.added.len() >= all).await?;
    let services = services.until(|seen| seen.added.len() >= all).await?;
    let took = pods.took(began).0.max(services.took(began).0);
    found.add(
        &at(RATE, "pods/s", number),
        subject,
        all as f64 / took * 1e3,
    );
    found.add(&at(ALL, "ms", number), subject, took);
    space.clear().await
}
