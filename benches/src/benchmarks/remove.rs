//! B5: replicas are removed, and reported as failed.

use std::{collections::BTreeSet, net::SocketAddr, time::Instant};

use anyhow::{Result, ensure};
use di_api::names;
use futures::future::try_join_all;
use serde_json::json;

use crate::{
    benchmarks::post::{ask, body, collectors, creates, plan_write, service_creates},
    harness::{
        calls::{Call, make_all},
        changes::Count,
        cluster::{Cluster, Space},
        http::{Connection, request},
        scale::Scale,
        stats::{At, Findings, Limit},
    },
};

const GONE: &str = "DELETE: time until all pods are gone";
const REPLACED: &str = "failed: time until all pods are gone and their successors there";
const OURS: &str = "endpoint";
const ONE_BY_ONE: &str = "original, without its throttle";
const PARALLEL: [(usize, &str); 2] = [
    (8, "plain calls, 8 at once"),
    (32, "plain calls, 32 at once"),
];
const WRITE_THEN_PARALLEL: [(usize, &str); 2] = [
    (
        8,
        "one status write, then plain calls for pods and services, 8 at once",
    ),
    (
        32,
        "one status write, then plain calls for pods and services, 32 at once",
    ),
];
/// Clients that remove at the same time, and how many replicas each.
const REMOVERS: usize = 8;
const EACH: usize = 5;

fn at(what: &'static str, n: usize) -> At {
    At {
        benchmark: "B5",
        what,
        unit: "ms",
        case: format!("n = {n}"),
        x: n,
    }
}

/// Runs it.
pub async fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let cluster = Cluster::start().await?;
    let (_endpoint, address) = cluster.endpoint().await?;
    let _manager = cluster.manager().await?;
    for &n in &scale.removed {
        for repetition in 0..=scale.repetitions {
            let mut sink = Findings::default();
            let found = if repetition == 0 {
                &mut sink
            } else {
                &mut *found
            };
            for what in [GONE, REPLACED] {
                let (took, p99) = ours(&cluster, address, what, n).await?;
                found.add_many(&at(what, n), OURS, took, p99);
                for (at_once, subject) in PARALLEL.into_iter().chain([(1, ONE_BY_ONE)]) {
                    let (took, p99) = plain(&cluster, what, n, at_once, false).await?;
                    found.add_many(&at(what, n), subject, took, p99);
                }
                for (at_once, subject) in WRITE_THEN_PARALLEL {
                    let (took, p99) = plain(&cluster, what, n, at_once, true).await?;
                    found.add_many(&at(what, n), subject, took, p99);
                }
            }
        }
        for what in [GONE, REPLACED] {
            for (_, plain) in PARALLEL {
                found.compare(&at(what, n), OURS, plain, Limit::FormerAtMost(1.25));
            }
            for (_, plain) in WRITE_THEN_PARALLEL {
                found.compare(&at(what, n), OURS, plain, Limit::AtMost(1.25));
            }
        }
    }
    for _ in 0..scale.repetitions {
        at_once(&cluster, address, found).await?;
    }
    Ok(())
}

/// A job with this number of unscheduled collectors.
async fn fleet(cluster: &Cluster, address: SocketAddr, n: usize) -> Result<(Space, Vec<String>)> {
    let space = cluster.space().await?;
    space.settled_job("job").await?;
    let selector = format!("{}=collector", names::labels::ROLE);
    let services = Count::of(&space.services(), &selector).await?;
    let mut connection = Connection::open([127, 0, 0, 1].into(), address).await?;
    let (names, _) = ask(&mut connection, &space, "job", n).await?;
    services.until(|seen| seen.added.len() >= n).await?;
    space.quiet("job").await?;
    Ok((space, names))
}

async fn watched(space: &Space) -> Result<Count> {
    Count::of(&space.pods(), &format!("{}=collector", names::labels::ROLE)).await
}

async fn ours(cluster: &Cluster, address: SocketAddr, what: &str, n: usize) -> Result<(f64, f64)> {
    let (space, names) = fleet(cluster, address, n).await?;
    let pods = watched(&space).await?;
    let mut connection = Connection::open([127, 0, 0, 1].into(), address).await?;
    let (request, successors) = if what == GONE {
        let body = body(&space, "job", &json!({"collectors": {"replicas": n}}));
        (request("DELETE", "/v1alpha1/replicas", &body), 0)
    } else {
        let body = body(&space, "job", &json!({"collectors": names}));
        (request("POST", "/v1alpha1/replicas/failed", &body), n)
    };
    let began = Instant::now();
    let answered = collectors(connection.call(&request).await?)?;
    let seen = pods
        .until(|seen| seen.deleted.len() >= n && seen.added.len() >= successors)
        .await?;
    ensure!(
        seen.deleted
            .iter()
            .eq(names.iter().collect::<BTreeSet<_>>()),
        "others went"
    );
    ensure!(
        answered.len() == n,
        "{} of {n} were answered",
        answered.len()
    );
    space.quiet("job").await?;
    space.clear().await?;
    Ok(seen.took(began))
}

/// The same deletes and creates of pods; with `whole`, also the write of the plan before them, and the services.
async fn plain(
    cluster: &Cluster,
    what: &str,
    n: usize,
    at_once: usize,
    whole: bool,
) -> Result<(f64, f64)> {
    let space = cluster.space().await?;
    let path = space.pods_path();
    let all = creates(&space, 2 * n)?;
    let (first, second) = all.split_at(n);
    make_all(&space.client, first.to_vec(), 8).await?;
    let (write, planned) = plan_write(&space, 2 * n).await?;
    let services = service_creates(&space, &planned)?;
    let (first_services, second_services) = services.split_at(n);
    if whole {
        make_all(&space.client, first_services.to_vec(), 8).await?;
    }
    let pods = watched(&space).await?;
    let name = |call: &Call| {
        let pod: serde_json::Value = serde_json::from_slice(&call.body)?;
        anyhow::Ok(
            pod["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        )
    };
    let names = first.iter().map(name).collect::<Result<Vec<_>>>()?;
    let deletes = names.iter().map(|name| Call::delete(&path, name));
    let successors = if what == GONE { 0 } else { n };
    let mut calls: Vec<Call> = deletes
        .chain(second.iter().take(successors).cloned())
        .collect();
    if whole {
        let path = space.services_path();
        calls.extend(names.iter().map(|name| Call::delete(&path, name)));
        calls.extend(second_services.iter().take(successors).cloned());
    }
    let began = Instant::now();
    if whole {
        write.make(&space.client).await?;
    }
    make_all(&space.client, calls, at_once).await?;
    let seen = pods
        .until(|seen| seen.deleted.len() >= n && seen.added.len() >= successors)
        .await?;
    space.clear().await?;
    Ok(seen.took(began))
}

/// Several clients remove at the same time: the requested, reported and deleted replicas must be the same.
async fn at_once(cluster: &Cluster, address: SocketAddr, found: &mut Findings) -> Result<()> {
    let asked = REMOVERS * EACH;
    let (space, _) = fleet(cluster, address, asked + 20).await?;
    let pods = watched(&space).await?;
    let body = body(&space, "job", &json!({"collectors": {"replicas": EACH}}));
    let request = request("DELETE", "/v1alpha1/replicas", &body);
    let removers = (0..REMOVERS).map(|_| async {
        let mut connection = Connection::open([127, 0, 0, 1].into(), address).await?;
        collectors(connection.call(&request).await?)
    });
    let reported = try_join_all(removers).await?.concat();
    let distinct: BTreeSet<String> = reported.iter().cloned().collect();
    pods.until(|seen| seen.deleted.len() >= distinct.len())
        .await?;
    // A replica removed without being reported would be deleted now.
    space.quiet("job").await?;
    let gone = pods.until(|_| true).await?.deleted;
    found.judge(
        "B5",
        &format!("{REMOVERS} clients remove {EACH} each at once: requested = reported = real"),
        format!("{asked} = {} = {}", reported.len(), gone.len()),
        reported.len() == asked && distinct == gone,
    );
    space.clear().await
}
