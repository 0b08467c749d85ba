//! B9: memory of the endpoint's process.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use di_api::names;
use kube::{ResourceExt, api::ListParams};
use serde_json::json;

use crate::{
    cluster::{Call, Cluster, Space, make_all},
    fleet::{job_name, manifest, new_pods, pod_status, replica_address, running_status},
    http::{Connection, request},
    machine::Usage,
    scale::Scale,
    stats::{At, Findings},
};

const RESIDENT: &str = "resident memory";
const PEAK: &str = "most resident memory, while it starts";
const START: &str = "time until it is ready";
const SUBJECT: &str = "di-orchestrator server";
const AT_ONCE: usize = 32;
/// How long it is left alone before it is looked at.
const REST: Duration = Duration::from_secs(2);

/// Runs it.
pub async fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let cluster = Cluster::start().await?;
    let client = cluster.client();
    let look = async |found: &mut Findings, case: String, x: usize| {
        let mut last = None;
        for _ in 0..scale.repetitions.min(2) {
            let usage = look(&cluster, found, &case, x).await?;
            last = last.or(Some(usage));
        }
        last.context("nothing was measured")
    };
    let empty = look(found, "no pods".to_owned(), 0).await?;

    let others = cluster.space().await?;
    let path = others.pods_path();
    let foreign = (0..scale.foreign).map(|i| foreign_pod(&path, i));
    make_all(&client, foreign.collect::<Result<_>>()?, AT_ONCE).await?;
    let case = format!("{} foreign pods", scale.foreign);
    let foreign = look(found, case.clone(), 0).await?;
    let more = foreign.resident - empty.resident;
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
        let usage = look(found, format!("{pods} pods"), pods).await?;
        #[allow(clippy::cast_precision_loss)]
        let each = (usage.resident - foreign.resident) * 1024.0 / pods as f64;
        let (target, measured) = ("2 KiB a pod, its share of its job included", each);
        if pods >= 10_000 {
            let text = format!("{measured:.2} KiB");
            found.judge(
                "B9",
                &format!("at most {target}, {pods} pods"),
                text,
                each <= 2.0,
            );
        }
        if pods == 10_000 {
            let text = format!("{:.1} MiB", usage.resident);
            found.judge("B9", "10000 pods below 64 MiB", text, usage.resident < 64.0);
        }
    }
    Ok(())
}

/// Starts the endpoint, asks it for everything once, and looks what it uses.
async fn look(cluster: &Cluster, found: &mut Findings, case: &str, x: usize) -> Result<Usage> {
    let began = Instant::now();
    let (process, address) = cluster.endpoint().await?;
    let ready = began.elapsed();
    let mut connection = Connection::open([127, 0, 0, 1].into(), address).await?;
    connection
        .call(&request("GET", "/v1alpha1/replicas", ""))
        .await?;
    tokio::time::sleep(REST).await;
    let usage = process.usage()?;
    let at = |what, unit| At {
        benchmark: "B9",
        what,
        unit,
        case: case.to_owned(),
        x,
    };
    found.add(&at(RESIDENT, "MiB"), SUBJECT, usage.resident);
    found.add(&at(PEAK, "MiB"), SUBJECT, usage.peak);
    found.add(&at(START, "s"), SUBJECT, ready.as_secs_f64());
    Ok(usage)
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
    let path = jobs_path(space);
    let (mut jobs, mut statuses) = (Vec::new(), Vec::new());
    for number in from..to {
        let job = manifest(&job_name(number))?;
        jobs.push(Call::create(&path, &job)?);
        let status = json!({"status": running_status(&job, 9)?});
        statuses.push(merge(&path, &job.name_any(), &status)?);
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
            let status = json!({"status": pod_status(replica_address(number * 10 + i), true)?});
            statuses.push(merge(&path, &pod.name_any(), &status)?);
        }
    }
    make_all(&space.client, pods, AT_ONCE).await?;
    make_all(&space.client, statuses, AT_ONCE).await
}

fn jobs_path(space: &Space) -> String {
    format!(
        "/apis/{}/{}/namespaces/{}/dijobs",
        names::GROUP,
        names::VERSION,
        space.name
    )
}

fn merge(path: &str, name: &str, patch: &serde_json::Value) -> Result<Call> {
    Ok(Call {
        method: http::Method::PATCH,
        path: format!("{path}/{name}/status"),
        content_type: "application/merge-patch+json",
        body: serde_json::to_vec(patch)?,
    })
}
