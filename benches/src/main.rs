//! Benchmarks of the replica endpoint, the reconciler and the webhooks, compared with alternatives.
//!
//! Everything that is compared is measured in one run, in turn, by the same client. `docs/benchmarks.md` says what and how.

// Futures and texts of a benchmark may be large.
#![allow(
    clippy::large_futures,
    clippy::format_push_string,
    clippy::similar_names
)]

mod benchmarks;
mod harness;
mod report;

use std::{path::PathBuf, time::Instant};

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{
    benchmarks::{
        burst, churn, cold, dashboard, first_step, get, latency, memory, namespace, plugin, polls,
        post, rate, ready, recovery, remove, sampling, signals, storm, webhook,
    },
    harness::{
        machine::{self, Machine},
        scale::Scale,
        serving::Serve,
        stats::{Findings, Verdict},
    },
    report::Report,
};

#[derive(Parser)]
#[command(about = "Benchmarks of the replica endpoint, the reconciler and the webhooks")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure, and write tables and plots
    Run(Run),
    /// Write tables and plots again, of the numbers in results.json
    Render {
        /// Where benchmarks.md and the folder benchmarks are
        #[arg(long, default_value = "docs")]
        output: PathBuf,
    },
    /// Serve full caches, to be measured; `run` starts it
    #[command(hide = true)]
    Serve(Serve),
    /// Serve the webhooks, to be measured; `run` starts it
    #[command(hide = true)]
    ServeWebhooks,
}

#[derive(Args)]
struct Run {
    /// Measure less, to see that everything works
    #[arg(long)]
    quick: bool,
    /// Measure only these; what is not measured is kept as results.json has it
    #[arg(long, value_delimiter = ',')]
    only: Vec<Benchmark>,
    /// For what needs nodes: brings up a cluster with the orchestrator installed, and prints where its kubeconfig is. Without it, that
    /// is measured only if it is named, on the cluster of KUBECONFIG
    #[arg(long, value_name = "COMMAND")]
    cluster: Option<String>,
    /// Where benchmarks.md and the folder benchmarks are written
    #[arg(long, default_value = "docs")]
    output: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Benchmark {
    B1,
    B2,
    B3,
    B4,
    B5,
    B6,
    B7,
    B8,
    B9,
    B10,
    B11,
    B12,
    B13,
    B14,
    B15,
    B16,
    B17,
    B18,
    B19,
    B20,
    B21,
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Run(run) => runtime()?.block_on(run.run()),
        Command::Render { output } => Report::read(&output)?.write(&output),
        Command::Serve(serve) => {
            Serve::pin()?;
            runtime()?.block_on(serve.run())
        }
        Command::ServeWebhooks => {
            Serve::pin()?;
            runtime()?.block_on(webhook::serve())
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.context("cannot start the runtime")
}

impl Run {
    async fn run(self) -> Result<()> {
        let scale = if self.quick {
            Scale::quick()
        } else {
            Scale::full()
        };
        let mut machine = Machine::look()?;
        let mut findings = Findings::default();
        let mut failed = None;
        for benchmark in Benchmark::value_variants() {
            if !self.asks_for(*benchmark) {
                continue;
            }
            let began = Instant::now();
            let mut found = Findings::default();
            let measured = benchmark.run(&scale, self.cluster.as_deref(), &mut found);
            match measured.await {
                Ok(()) => {
                    findings = found.over(findings);
                    let seconds = began.elapsed().as_secs_f64();
                    eprintln!("{} took {seconds:.0} s", benchmark.name());
                }
                // The earlier results took long.
                Err(error) => {
                    eprintln!("{error:#}");
                    failed = Some(error);
                }
            }
        }
        machine.load.push(machine::load()?);
        for verdict in &findings.verdicts {
            let met = match verdict {
                Verdict { history: true, .. } => "history",
                Verdict { met: true, .. } => "met    ",
                Verdict { met: false, .. } => "MISSED ",
            };
            println!(
                "{met} {} {}: {}",
                verdict.benchmark, verdict.target, verdict.measured
            );
        }
        if let Ok(before) = Report::read(&self.output) {
            findings = findings.over(before.findings);
        }
        Report { machine, findings }.write(&self.output)?;
        failed.map_or(Ok(()), Err)
    }

    fn asks_for(&self, benchmark: Benchmark) -> bool {
        if self.only.is_empty() {
            self.cluster.is_some() || !benchmark.needs_nodes()
        } else {
            self.only.contains(&benchmark)
        }
    }
}

impl Benchmark {
    /// Whether it needs a cluster whose pods run, with the orchestrator installed.
    const fn needs_nodes(self) -> bool {
        matches!(self, Self::B17 | Self::B18)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::B1 => "B1",
            Self::B2 => "B2",
            Self::B3 => "B3",
            Self::B4 => "B4",
            Self::B5 => "B5",
            Self::B6 => "B6",
            Self::B7 => "B7",
            Self::B8 => "B8",
            Self::B9 => "B9",
            Self::B10 => "B10",
            Self::B11 => "B11",
            Self::B12 => "B12",
            Self::B13 => "B13",
            Self::B14 => "B14",
            Self::B15 => "B15",
            Self::B16 => "B16",
            Self::B17 => "B17",
            Self::B18 => "B18",
            Self::B19 => "B19",
            Self::B20 => "B20",
            Self::B21 => "B21",
        }
    }

    async fn run(self, scale: &Scale, cluster: Option<&str>, found: &mut Findings) -> Result<()> {
        let ran = match self {
            Self::B1 => post::run(scale, found).await,
            Self::B2 => get::run(scale, found),
            Self::B3 => namespace::run(scale, found).await,
            Self::B4 => storm::run(scale, found),
            Self::B5 => remove::run(scale, found).await,
            Self::B6 => burst::run(scale, found).await,
            Self::B7 => latency::run(scale, found).await,
            Self::B8 => cold::run(scale, found).await,
            Self::B9 => memory::run(scale, found).await,
            Self::B10 => webhook::run(scale, found).await,
            Self::B11 => churn::run(scale, found).await,
            Self::B12 => recovery::run(scale, found).await,
            Self::B13 => plugin::run(scale, found).await,
            Self::B14 => signals::run(scale, found),
            Self::B15 => sampling::run(scale, found),
            Self::B16 => rate::run(scale, found),
            Self::B17 => first_step::run(scale, cluster, found).await,
            Self::B18 => ready::run(scale, cluster, found).await,
            Self::B19 => webhook::dry_run::run(scale, found).await,
            Self::B20 => polls::run(scale, found),
            Self::B21 => dashboard::run(scale, found).await,
        };
        ran.with_context(|| format!("{} could not be measured", self.name()))
    }
}
