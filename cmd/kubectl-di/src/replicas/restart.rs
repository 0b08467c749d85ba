use std::{io::Write, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use di_client::{Counts, Restarted, WhichReplicas, delete_pod, job, replicas_to_restart};
use serde_json::json;

use super::until_ready;
use crate::{
    dry_run::DryRunFlag,
    globals::Globals,
    names::{job_name, replica_name},
    output::report,
    printed::{Output, Printer},
    waiting::Waiting,
};

/// Replace replicas by new ones: their pods are deleted, and others of fresh names take their places.
///
/// Of a logic learner the aggregator and all ddp learners are replaced, whichever of them is named. Replicas that are done are left alone unless
/// they are named. The first replacement of a place is made at once, further ones wait longer.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # One replica
  kubectl di replicas restart cartpole cartpole-collector-x7k2p

  # All collectors, and wait until the new ones are ready
  kubectl di replicas restart cartpole --collectors --wait --timeout=5m")]
pub struct Restart {
    /// Name of the job
    #[arg(value_parser = job_name)]
    job: String,
    /// Names of replicas
    #[arg(value_name = "POD", value_parser = replica_name, conflicts_with_all = ["collectors", "learners"])]
    pods: Vec<String>,
    /// All collectors
    #[arg(long)]
    collectors: bool,
    /// All learners
    #[arg(long)]
    learners: bool,
    #[command(flatten)]
    dry_run: DryRunFlag,
    /// Show only kind and name of the pods
    #[arg(short, long)]
    output: Option<NameFormat>,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum NameFormat {
    /// Kind and name
    Name,
}

impl Restart {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let which = match (&*self.pods, self.collectors, self.learners) {
            ([], false, false) => {
                bail!("must specify names of replicas, or --collectors or --learners")
            }
            ([], collectors, learners) => WhichReplicas::All(Counts {
                collectors,
                learners,
            }),
            (names, ..) => WhichReplicas::Named(names.to_vec()),
        };
        let cluster = globals.connect().await?;
        let job = job(&cluster, &self.job).await?;
        let pods = replicas_to_restart(&cluster, &job, &which).await?;
        if pods.is_empty() {
            eprintln!("No pods to restart.");
        }
        let mut code = ExitCode::SUCCESS;
        let mut gone = Vec::new();
        let output = Output::of_names(self.output.is_some());
        let mut printer = Printer::new(&output, self.dry_run);
        for pod in pods {
            match delete_pod(&cluster, &pod, self.dry_run.get()).await {
                Ok(was_there) => {
                    let done = if was_there {
                        "restarted"
                    } else {
                        "is gone already"
                    };
                    printer.print(out, object(&pod), done)?;
                    gone.push(pod);
                }
                Err(error) => {
                    report(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        out.flush()?;
        if self.waiting.is_wanted() && self.dry_run.is_real() && !gone.is_empty() {
            until_ready(&cluster, &job, &gone, self.waiting).await?;
        }
        Ok(code)
    }
}

fn object(pod: &Restarted) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name}})
}
