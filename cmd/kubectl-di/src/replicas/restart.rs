use std::{io::Write, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use di_client::{Counts, HowMany, WhichReplicas, delete_pod, job, replicas_to_restart};
use serde_json::json;

use super::{Besides, until_ready};
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
/// they are named. By count, those go first that are not ready, then the newest, as where fewer are declared. The first replacement of a place is made at once, further ones wait longer.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # One replica; the job's name may be left out of its own
  kubectl di replicas restart cartpole collector-x7k2p

  # Two collectors
  kubectl di replicas restart cartpole --collectors=2

  # All collectors, and wait until the new ones are ready
  kubectl di replicas restart cartpole --collectors --wait --timeout=5m")]
pub struct Restart {
    /// Name of the job
    #[arg(value_parser = job_name)]
    job: String,
    /// Names of replicas
    #[arg(value_name = "POD", value_parser = replica_name)]
    pods: Vec<String>,
    /// Collectors: all of them, or with =N so many
    #[arg(long, value_name = "N", value_parser = how_many, num_args = 0..=1, require_equals = true, default_missing_value = ALL)]
    collectors: Option<HowMany>,
    /// Learners: all of them, or with =N so many
    #[arg(long, value_name = "N", value_parser = how_many, num_args = 0..=1, require_equals = true, default_missing_value = ALL)]
    learners: Option<HowMany>,
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

const ALL: &str = "all";

fn how_many(text: &str) -> Result<HowMany, String> {
    match text.parse() {
        Ok(count) if count >= 1 => Ok(HowMany::First(count)),
        _ if text == ALL => Ok(HowMany::All),
        _ => Err("must be a number from 1; without one, all are meant".to_owned()),
    }
}

impl Restart {
    fn which(&self) -> Result<WhichReplicas> {
        let flag = match (self.collectors, self.learners) {
            (Some(_), _) => Some("--collectors"),
            (None, Some(_)) => Some("--learners"),
            (None, None) => None,
        };
        match (&*self.pods, flag) {
            ([], None) => bail!("must specify names of replicas, or --collectors or --learners"),
            ([], Some(_)) => Ok(WhichReplicas::Of(Counts {
                collectors: self.collectors.unwrap_or_default(),
                learners: self.learners.unwrap_or_default(),
            })),
            ([first, ..], Some(flag)) if first.parse::<usize>().is_ok() => {
                bail!("a number needs an equals sign: {flag}={first}")
            }
            (_, Some(flag)) => bail!("names of replicas and {flag} cannot be given together"),
            (names, None) => Ok(WhichReplicas::Named(names.to_vec())),
        }
    }

    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let which = self.which()?;
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
                    for name in [&pod.name].into_iter().chain(&pod.others) {
                        printer.print(out, object(name), done)?;
                    }
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
            until_ready(&cluster, &job, Besides::Replaced(&gone), self.waiting).await?;
        }
        Ok(code)
    }
}

fn object(pod: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}})
}
