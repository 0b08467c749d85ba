//! B9: memory of the endpoint's process.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use di_api::names;
use kube::{ResourceExt, api::ListParams};
use serde_json::{Value, json};

use crate::harness::{
    calls::{Call, make_all},
    child::Process,
    cluster::{Cluster, Space},
    fleet::{job_name, manifest, new_pods, pod_status, replica_address, running_status},
    http::{Connection, request},
    scale::Scale,
    stats::{At, Findings},
};

const RESIDENT: &str = "resident memory";
const PEAK: &str = "most resident memory, while it starts";
const START: &str = "time until it is ready";
const RELISTED: &str =
    "resident memory, after the API server was killed and started again five times";
const RELISTS: usize = 5;
const SUBJECT: &str = "di-orchestrator server";
const AT_ONCE: usize = 32;
/// Idle time before a measurement.
const REST: Duration = Duration::from_secs(2);
/// Watches come back within this time: they wait ever longer between their tries.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs it.
pub async fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let client = cluster.client();
    let look = async |cluster: &Cluster, found: &mut Findings, case: &str, x: usize| {
        let mut last = None;
        for _ in 0..scale.repetitions.min(2) {
            last = Some(look(cluster, found, case, x).await?);
        }
        last.context("nothing was measured")
    };
    let (_, empty) = look(&cluster, found, "no pods", 0).await?;

    let others = cluster.space().await?;
    let path = others.pods_path();
    let foreign = (0..scale.foreign).map(|i| foreign_pod(&path, i));
    make_all(&client, foreign.collect::<Result<_>>()?, AT_ONCE).await?;
    let case = format!("{} foreign pods", scale.foreign);
    let (_, foreign) = look(&cluster, found, &case, 0).await?;
    let more = foreign - empty;
    found.judge(
        "B9",
        &format!("{case} cost nothing"),
        format!("{more:+.1} MiB"),
        more < 1.0,
    );

    let space = cluster.space().await?;
    let mut there = 0;
    for &pods in &scale.remembered {
        fill(&space, there, pods / 10).await?;
        there = pods / 10;
        let case = format!("{pods} pods");
        let (running, resident) = look(&cluster, found, &case, pods).await?;
        judge(found, &case, pods, foreign, resident);
        if pods == scale.relisted {
            let resident = relist(&mut cluster, &space, &running).await?;
            found.add(&at(RELISTED, "MiB", &case, pods), SUBJECT, resident);
            let case = format!("{case}, after {RELISTS} relists");
            judge(found, &case, pods, foreign, resident);
        }
    }
    Ok(())
}

fn at(what: &'static str, unit: &'static str, case: &str, x: usize) -> At {
    At {
        benchmark: "B9",
        what,
        unit,
        case: case.to_owned(),
        x,
    }
}

fn judge(found: &mut Findings, case: &str, pods: usize, without: f64, resident: f64) {
    if pods < 10_000 {
        return;
    }
    #[allow(clippy::cast_precision_loss)]
    let each = (resident - without) * 1024.0 / pods as f64;
    found.judge(
        "B9",
        &format!("at most 2 KiB a pod, its share of its job included, {case}"),
        format!("{each:.2} KiB"),
        each <= 2.0,
    );
    if pods == 10_000 {
        let text = format!("{resident:.1} MiB");
        found.judge("B9", &format!("{case} below 64 MiB"), text, resident < 64.0);
    }
}

/// An endpoint that runs, and where it listens.
type Running = (Process, SocketAddr);

/// Starts the endpoint, asks it for everything once, and looks what memory it uses.
async fn look(
    cluster: &Cluster,
    found: &mut Findings,
    case: &str,
    x: usize,
) -> Result<(Running, f64)> {
    let began = Instant::now();
    let running = cluster.endpoint().await?;
    let ready = began.elapsed();
    ask(running.1, "").await?;
    tokio::time::sleep(REST).await;
    let usage = running.0.usage()?;
    found.add(&at(RESIDENT, "MiB", case, x), SUBJECT, usage.resident);
    found.add(&at(PEAK, "MiB", case, x), SUBJECT, usage.peak);
    found.add(&at(START, "s", case, x), SUBJECT, ready.as_secs_f64());
    Ok((running, usage.resident))
}

async fn ask(address: SocketAddr, query: &str) -> Result<Value> {
    let mut connection = Connection::open([127, 0, 0, 1].into(), address).await?;
    let path = format!("/v1alpha1/replicas{query}");
    let answer = connection.call(&request("GET", &path, "")).await?;
    Ok(serde_json::from_slice(answer)?)
}

/// Lets the endpoint relist everything several times, then measures its memory.
async fn relist(cluster: &mut Cluster, space: &Space, (process, address): &Running) -> Result<f64> {
    let listed = async |job: &str| {
        let answer = ask(*address, &format!("?namespace={}", space.name)).await?;
        let records = answer["data"].as_array().cloned().unwrap_or_default();
        let coordinator = names::coordinator_name(job);
        let record = records.iter().find(|of| of["coordinator"] == coordinator);
        let collectors = record.and_then(|of| of["collectors"].as_array());
        anyhow::Ok(collectors.map_or(0, Vec::len))
    };
    for round in 0..RELISTS {
        // Later writes make the watches' resource versions too old for an API server without a watch cache.
        cluster.space().await?;
        cluster.restart().await;
        // A job and a pod change: once both are known, both watches work.
        let name = job_name(round);
        let job = space.jobs().get(&name).await?;
        let fewer = json!(running_status(&job, 8)?);
        Call::status(&space.jobs_path(), &name, &fewer)?
            .make(&space.client)
            .await?;
        let pod = new_pods(&job).remove(1).name_any();
        let condition = json!({"type": "PodScheduled", "status": "False"});
        let status = json!({"conditions": [condition]});
        Call::status(&space.pods_path(), &pod, &status)?
            .make(&space.client)
            .await?;
        let began = Instant::now();
        while listed(&name).await? != 7 {
            ensure!(began.elapsed() < PATIENCE, "the watches do not come back");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    tokio::time::sleep(REST).await;
    Ok(process.usage()?.resident)
}

fn foreign_pod(path: &str, number: usize) -> Result<Call> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("web-{number:06}"), "labels": {"app": "web", "tier": "front"}},
        "spec": {"containers": [{"name": "web", "image": "registry.example.org/web:1"}]},
    });
    Call::create(path, &pod)
}

/// Makes jobs of ten pods, running, from one number up to another.
async fn fill(space: &Space, from: usize, to: usize) -> Result<()> {
    let path = space.jobs_path();
    let (mut jobs, mut statuses) = (Vec::new(), Vec::new());
    for number in from..to {
        let job = manifest(&job_name(number))?;
        jobs.push(Call::create(&path, &job)?);
        let status = json!(running_status(&job, 9)?);
        statuses.push(Call::status(&path, &job.name_any(), &status)?);
    }
    make_all(&space.client, jobs, AT_ONCE).await?;
    make_all(&space.client, statuses, AT_ONCE).await?;

    let path = space.pods_path();
    let (mut pods, mut statuses) = (Vec::new(), Vec::new());
    let numbers: BTreeMap<String, usize> = (from..to).map(|n| (job_name(n), n)).collect();
    for job in space.jobs().list(&ListParams::default()).await? {
        let Some(number) = numbers.get(&job.name_any()) else {
            continue;
        };
        for (i, mut pod) in new_pods(&job).into_iter().enumerate() {
            if let Some(spec) = &mut pod.spec {
                spec.node_name = Some(format!("node-{:04}", number % 1000));
            }
            pods.push(Call::create(&path, &pod)?);
            let status = json!(pod_status(replica_address(number * 10 + i), true)?);
            statuses.push(Call::status(&path, &pod.name_any(), &status)?);
        }
    }
    make_all(&space.client, pods, AT_ONCE).await?;
    make_all(&space.client, statuses, AT_ONCE).await
}
