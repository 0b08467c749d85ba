//! B19: the time that the dry run of pods adds to a create of a job, compared with one dry-run create of a pod.

use std::time::Instant;

use anyhow::Result;
use di_api::DIJob;
use k8s_openapi::{ByteString, api::core::v1::Pod};
use kube::{Api, Client, api::PostParams};
use serde_json::json;

use super::{
    added::{self, label},
    handlers::{certificate, listen, specs, webhook, webhook_with_dry_run},
};
use crate::harness::{
    cluster::Cluster,
    scale::Scale,
    stats::{At, Findings, Limit, quantile},
};

const ADDED: &str = "dry run of three pods in the webhook";
const POD: &str = "dry-run create of one pod";
const CASE: &str = "three roles";

/// Runs it: creates that change nothing, in turn. Names differ, so that no answer is cached.
pub async fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let cluster = Cluster::start().await?;
    let client = cluster.client();
    let (bundle, certificates) = certificate()?;
    let authorities = serde_json::to_value(ByteString(bundle.ca))?;
    let mut jobs: Vec<Api<DIJob>> = Vec::new();
    for (asked, router) in [
        ("plain", webhook(client.clone())),
        ("dry-run", webhook_with_dry_run(client.clone())),
    ] {
        let space = cluster.space().await?;
        label(&client, &space.name, asked).await?;
        let to = listen(router, &certificates).await?;
        added::configure(&client, asked, to, &authorities).await?;
        jobs.push(Api::namespaced(client.clone(), &space.name));
    }
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    added::until_asked(&jobs[1], &params).await?;
    let pods = pods(&client, &cluster).await?;
    let [_, (_, spec)] = specs();
    let pod_spec = &spec["coordinator"]["template"]["spec"];
    let at = At {
        benchmark: "B19",
        what: "median that is added to a create of a job",
        unit: "ms",
        case: CASE.to_owned(),
        x: 3,
    };
    for repetition in 0..=scale.repetitions {
        let mut times = [const { Vec::new() }; 3];
        for i in 0..scale.creates {
            let name = format!("j-{repetition}-{i}");
            let job: DIJob =
                serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
            let pod: Pod =
                serde_json::from_value(json!({"metadata": {"name": name}, "spec": pod_spec}))?;
            for (api, times) in jobs.iter().zip(&mut times) {
                let began = Instant::now();
                api.create(&params, &job).await?;
                times.push(began.elapsed().as_secs_f64() * 1e3);
            }
            let began = Instant::now();
            pods.create(&params, &pod).await?;
            times[2].push(began.elapsed().as_secs_f64() * 1e3);
        }
        if repetition == 0 {
            continue;
        }
        let [plain, with, pod] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            quantile(&times, 0.5)
        });
        found.add(&at, ADDED, with - plain);
        found.add(&at, POD, pod);
    }
    found.compare(&at, ADDED, POD, Limit::AtMost(2.0));
    Ok(())
}

async fn pods(client: &Client, cluster: &Cluster) -> Result<Api<Pod>> {
    let space = cluster.space().await?;
    Ok(Api::namespaced(client.clone(), &space.name))
}
