//! B13: `kubectl di` compared with kubectl, as whole programs.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use serde_json::json;

use crate::harness::{
    calls::{Call, make_all},
    child::sibling,
    cluster::{Cluster, Space},
    fleet::{job_name, manifest, running_status},
    scale::Scale,
    stats::{At, Findings, Limit},
};

const OURS: &str = "kubectl-di";
const KUBECTL: &str = "kubectl";
const START: &str = "time from start to end";
const AT_ONCE: usize = 32;

/// The case, our arguments, and kubectl's.
type Case = (String, Vec<&'static str>, Vec<&'static str>, f64);

/// Runs it.
pub async fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let cluster = Cluster::start().await?;
    let space = cluster.space().await?;
    fill(&space, scale.shown).await?;
    let ours = sibling("kubectl-di")?;
    let kubectl = kubectl()?;
    let cases: [Case; 2] = [
        (
            format!("{} jobs shown", scale.shown),
            vec!["get"],
            vec!["get", "dijob"],
            1.2,
        ),
        (
            "own version shown".to_owned(),
            vec!["version", "--client"],
            vec!["version", "--client"],
            0.2,
        ),
    ];
    let at = |case: &str| At {
        benchmark: "B13",
        what: START,
        unit: "ms",
        case: case.to_owned(),
        x: scale.shown,
    };
    for (case, our_words, their_words, limit) in &cases {
        for repetition in 0..=scale.started {
            for (subject, program, words) in
                [(OURS, &ours, our_words), (KUBECTL, &kubectl, their_words)]
            {
                let took = time(&cluster, &space, program, words)?;
                // The first fills kubectl's cache of what there is, and the file cache with the programs.
                if repetition > 0 {
                    found.add(&at(case), subject, took);
                }
            }
        }
        found.compare(&at(case), OURS, KUBECTL, Limit::AtMost(*limit));
    }
    Ok(())
}

/// The one that belongs to the API server.
fn kubectl() -> Result<PathBuf> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").context("KUBEBUILDER_ASSETS is not set")?;
    let kubectl = Path::new(&assets).join("kubectl");
    ensure!(kubectl.exists(), "{} does not exist", kubectl.display());
    Ok(kubectl)
}

/// Runs a program as a user does, its output into nothing, and returns how long that took, in milliseconds.
fn time(cluster: &Cluster, space: &Space, program: &Path, words: &[&str]) -> Result<f64> {
    let began = Instant::now();
    let status = Command::new(program)
        .args(["--namespace", &space.name])
        .args(words)
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("HOME", cluster.home())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}: run `make bench`", program.display()))?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    ensure!(status.success(), "{} failed", program.display());
    Ok(took)
}

/// Makes jobs that run.
async fn fill(space: &Space, many: usize) -> Result<()> {
    let path = space.jobs_path();
    let (mut jobs, mut statuses) = (Vec::new(), Vec::new());
    for number in 0..many {
        let job = manifest(&job_name(number))?;
        jobs.push(Call::create(&path, &job)?);
        let status = json!(running_status(&job, 9)?);
        statuses.push(Call::status(&path, &job.name_any(), &status)?);
    }
    make_all(&space.client, jobs, AT_ONCE).await?;
    make_all(&space.client, statuses, AT_ONCE).await
}
