//! B1: a coordinator asks for n collectors.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use di_api::{DIJob, Origin, PlanEntry, Role, guarded_patch, names};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::harness::{
    calls::{Call, make_all},
    changes::Count,
    cluster::{Cluster, Space},
    fleet::{manifest, new_pods},
    http::{Connection, request},
    original::Throttle,
    scale::Scale,
    stats::{At, Findings, Limit},
};

const ANSWER: &str = "time until the answer";
const PODS: &str = "time until all pods are there";
const SERVICES: &str = "time until all services are there too";
const OURS: &str = "POST to the endpoint";
const WRITE: &str = "one bare status write of that size";
const PARALLEL: [(usize, &str); 2] = [
    (8, "plain creates, 8 at once"),
    (32, "plain creates, 32 at once"),
];
const WRITE_THEN_PARALLEL: [(usize, &str); 2] = [
    (
        8,
        "one status write, then plain creates of pods and services, 8 at once",
    ),
    (
        32,
        "one status write, then plain creates of pods and services, 32 at once",
    ),
];
const ONE_BY_ONE: &str = "original, without its throttle";
const THROTTLED: &str = "original, 5 a second after 10";
/// The most that the throttled original is measured with: 100 take 18 s, 500 would take 98 s.
const THROTTLED_MOST: usize = 100;

fn at(what: &'static str, n: usize) -> At {
    At {
        benchmark: "B1",
        what,
        unit: "ms",
        case: format!("n = {n}"),
        x: n,
    }
}

fn put(found: &mut Findings, what: &'static str, n: usize, subject: &str, value: Duration) {
    found.add(&at(what, n), subject, value.as_secs_f64() * 1e3);
}

/// Time of all, and of 99 % of them.
fn put_all(found: &mut Findings, what: &'static str, n: usize, subject: &str, took: (f64, f64)) {
    found.add_many(&at(what, n), subject, took.0, took.1);
}

/// Shared setup of the measurements.
#[derive(Clone, Copy)]
struct Setting<'a> {
    cluster: &'a Cluster,
    /// Client of the endpoint.
    address: SocketAddr,
    scale: &'a Scale,
}

/// Runs it.
pub async fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let cluster = Cluster::start().await?;
    let (_endpoint, address) = cluster.endpoint().await?;
    let setting = Setting {
        cluster: &cluster,
        address,
        scale,
    };
    answers(setting, found).await?;
    let _manager = cluster.manager().await?;
    pods(setting, found).await?;
    for &n in &scale.requested {
        found.compare(&at(ANSWER, n), OURS, WRITE, Limit::AtMost(3.0));
    }
    for &n in &scale.requested {
        for (_, plain) in PARALLEL {
            found.compare(&at(PODS, n), OURS, plain, Limit::FormerAtMost(1.25));
        }
        for (_, plain) in WRITE_THEN_PARALLEL {
            found.compare(&at(SERVICES, n), OURS, plain, Limit::AtMost(1.25));
        }
    }
    Ok(())
}

/// The body of a request of a coordinator.
pub fn body(space: &Space, job: &str, rest: &Value) -> String {
    let mut body = json!({"namespace": space.name, "coordinator": names::coordinator_name(job)});
    if let (Some(body), Some(rest)) = (body.as_object_mut(), rest.as_object()) {
        body.extend(rest.clone());
    }
    body.to_string()
}

/// Asks for collectors, and returns their names and how long the answer took.
pub async fn ask(
    connection: &mut Connection,
    space: &Space,
    job: &str,
    n: usize,
) -> Result<(Vec<String>, Duration)> {
    let body = body(space, job, &json!({"collectors": {"replicas": n}}));
    let request = request("POST", "/v1alpha1/replicas", &body);
    let began = Instant::now();
    let answer = connection.call(&request).await?;
    let took = began.elapsed();
    Ok((collectors(answer)?, took))
}

/// Names of the collectors of an answer.
pub fn collectors(answer: &[u8]) -> Result<Vec<String>> {
    let answer: Value = serde_json::from_slice(answer)?;
    ensure!(answer["success"] == true, "the endpoint answered {answer}");
    let urls = answer["data"]["collectors"]
        .as_array()
        .context("no collectors")?;
    let names = urls
        .iter()
        .filter_map(|url| url.as_str()?.split('.').next());
    Ok(names.map(str::to_owned).collect())
}

/// The response alone, without a reconciler, compared with a write of the same status.
async fn answers(setting: Setting<'_>, found: &mut Findings) -> Result<()> {
    let Setting {
        cluster,
        address,
        scale,
    } = setting;
    let mut connection = Connection::open([127, 0, 0, 1].into(), address).await?;
    for repetition in 0..=scale.answers {
        let space = cluster.space().await?;
        for &n in &scale.requested {
            let (asked, twin) = (format!("asked-{n}"), format!("twin-{n}"));
            space.create(&asked).await?;
            let twin = space.create(&twin).await?;
            // The endpoint's watch brings the job; asking before would measure a read as well.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let (names, took) = ask(&mut connection, &space, &asked, n).await?;
            ensure!(names.len() == n, "{} of {n} were planned", names.len());
            let status = json!(space.jobs().get(&asked).await?.status);
            let write = status_write(&twin, status)?;
            let began = Instant::now();
            write.make(&space.client).await?;
            let bare = began.elapsed();
            // The first round warms connections and code up.
            if repetition > 0 {
                put(found, ANSWER, n, OURS, took);
                put(found, ANSWER, n, WRITE, bare);
            }
        }
        space.clear().await?;
    }
    Ok(())
}

fn status_write(job: &DIJob, status: Value) -> Result<Call> {
    let patch = guarded_patch(job.resource_version().as_deref(), ["status"], status);
    let (group, version) = (names::GROUP, names::LEGACY_VERSION);
    let namespace = job.namespace().unwrap_or_default();
    let name = job.name_any();
    Ok(Call {
        method: http::Method::PATCH,
        path: format!("/apis/{group}/{version}/namespaces/{namespace}/dijobs/{name}/status"),
        content_type: "application/json-patch+json",
        body: serde_json::to_vec(&patch)?,
        may_be_gone: false,
    })
}

/// Until the pods are there.
async fn pods(setting: Setting<'_>, found: &mut Findings) -> Result<()> {
    let Setting { cluster, scale, .. } = setting;
    for repetition in 0..=scale.repetitions {
        for &n in &scale.requested {
            let mut sink = Findings::default();
            let found = if repetition == 0 {
                &mut sink
            } else {
                &mut *found
            };
            ours(setting, n, found).await?;
            for (at_once, subject) in PARALLEL {
                let took = plain(cluster, n, at_once, false).await?;
                put_all(found, PODS, n, subject, took);
            }
            for (at_once, subject) in WRITE_THEN_PARALLEL {
                let took = write_then_create(cluster, n, at_once).await?;
                put_all(found, SERVICES, n, subject, took);
            }
            if repetition == 0 {
                continue;
            }
            let took = plain(cluster, n, 1, false).await?;
            put_all(found, PODS, n, ONE_BY_ONE, took);
            // This measures only the throttle, which does not vary.
            if n <= THROTTLED_MOST.min(scale.throttled) && repetition <= 2 {
                let took = plain(cluster, n, 1, true).await?;
                put_all(found, PODS, n, THROTTLED, took);
            }
        }
    }
    Ok(())
}

async fn ours(setting: Setting<'_>, n: usize, found: &mut Findings) -> Result<()> {
    let space = setting.cluster.space().await?;
    space.settled_job("job").await?;
    // A new connection each time: the endpoint closes idle ones.
    let mut connection = Connection::open([127, 0, 0, 1].into(), setting.address).await?;
    let selector = format!(
        "{}=job,{}=collector",
        names::labels::JOB,
        names::labels::ROLE
    );
    let pods = Count::of(&space.pods(), &selector).await?;
    let services = Count::of(&space.services(), &selector).await?;
    let began = Instant::now();
    let (names, answered) = ask(&mut connection, &space, "job", n).await?;
    let seen = pods.until(|seen| seen.added.len() >= n).await?;
    let reachable = services.until(|seen| seen.added.len() >= n).await?;
    ensure!(
        names.iter().all(|name| seen.added.contains(name)),
        "other pods came than answered"
    );
    put(
        found,
        "time until the answer, with the reconciler at work",
        n,
        OURS,
        answered,
    );
    put_all(found, PODS, n, OURS, seen.took(began));
    put_all(found, SERVICES, n, OURS, reachable.took(began));
    space.quiet("job").await?;
    space.clear().await
}

async fn plain(cluster: &Cluster, n: usize, at_once: usize, throttled: bool) -> Result<(f64, f64)> {
    let space = cluster.space().await?;
    let calls = creates(&space, n)?;
    let selector = format!("{}=collector", names::labels::ROLE);
    let pods = Count::of(&space.pods(), &selector).await?;
    let mut throttle = throttled.then(Throttle::of_the_server);
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
    let seen = pods.until(|seen| seen.added.len() >= n).await?;
    space.clear().await?;
    Ok(seen.took(began))
}

/// What the orchestrator must do at least: the plan is written, then its pods and services are created.
async fn write_then_create(cluster: &Cluster, n: usize, at_once: usize) -> Result<(f64, f64)> {
    let space = cluster.space().await?;
    let (write, planned) = plan_write(&space, n).await?;
    let mut calls = creates(&space, n)?;
    calls.extend(service_creates(&space, &planned)?);
    let selector = format!("{}=collector", names::labels::ROLE);
    let services = Count::of(&space.services(), &selector).await?;
    let pods = Count::of(&space.pods(), &selector).await?;
    let began = Instant::now();
    write.make(&space.client).await?;
    make_all(&space.client, calls, at_once).await?;
    let served = services.until(|seen| seen.added.len() >= n).await?;
    pods.until(|seen| seen.added.len() >= n).await?;
    space.clear().await?;
    Ok(served.took(began))
}

/// A write of a plan of n collectors to a suspended job, so that the reconciler creates nothing.
pub async fn plan_write(space: &Space, n: usize) -> Result<(Call, DIJob)> {
    let job = space.suspended_job("twin").await?;
    let planned = planned_job(space, n)?;
    let mut status = job.status.clone().unwrap_or_default();
    status.plan = plan(&planned).cloned().collect();
    let write = status_write(&job, serde_json::to_value(status)?)?;
    Ok((write, planned))
}

/// Creates of the collectors of an unknown job, so that no reconciler acts on them.
pub fn creates(space: &Space, n: usize) -> Result<Vec<Call>> {
    let job = planned_job(space, n)?;
    let path = space.pods_path();
    let pods = new_pods(&job);
    // The first is the coordinator.
    pods[1..]
        .iter()
        .map(|pod| Call::create(&path, pod))
        .collect()
}

/// Creates of the services of a plan.
pub fn service_creates(space: &Space, job: &DIJob) -> Result<Vec<Call>> {
    let path = space.services_path();
    plan(job)
        .map(|entry| Call::create(&path, &di_plan::build_service(job, entry)))
        .collect()
}

fn plan(job: &DIJob) -> impl Iterator<Item = &PlanEntry> {
    job.status.iter().flat_map(|status| &status.plan)
}

/// An unknown job with n collectors in its plan.
fn planned_job(space: &Space, n: usize) -> Result<DIJob> {
    let mut job = manifest("plain")?;
    job.metadata.namespace = Some(space.name.clone());
    job.metadata.uid = Some("00000000-0000-4000-8000-000000000000".to_owned());
    let entry = |i: usize| {
        let name = names::replica_name("plain", Role::Collector, &format!("{i:05}"));
        PlanEntry::new(
            name,
            Role::Collector,
            Origin::Requested,
            i32::try_from(i).unwrap_or(0),
        )
    };
    job.status.get_or_insert_default().plan = (0..n).map(entry).collect();
    Ok(job)
}
