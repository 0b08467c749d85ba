use std::{io::Write, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use di_client::{Counts, RestartCount, RestartSelection, delete_pod, get_job, replicas_to_restart};
use serde_json::json;

use super::wait::{AlsoWait, wait_until_ready};
use crate::{
    flags::{
        dry_run::DryRunFlag,
        globals::Globals,
        names::{parse_job_name, parse_replica_name},
        wait::WaitFlags,
    },
    output::{
        printer::{OutputFlags, Printer},
        report_error,
    },
};

/// Restart replicas: delete their pods and create replacements with new names.
///
/// If a replica of a learner group is named, the aggregator and all ddp learners of the group are
/// replaced. Completed replicas are replaced only by name. With a count, replicas that are not
/// ready are replaced first, then the newest, in the same order as a scale-down. The first
/// replacement of an index is created immediately, later ones with a growing delay.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Restart one replica; the prefix with the name of the job is optional
  kubectl di replicas restart cartpole collector-x7k2p

  # Restart two collectors
  kubectl di replicas restart cartpole --collectors=2

  # Restart all collectors, and wait until the replacements are ready
  kubectl di replicas restart cartpole --collectors --wait --timeout=5m")]
pub struct Restart {
    /// Name of the job
    #[arg(value_parser = parse_job_name)]
    job: String,
    /// Names of replicas
    #[arg(value_name = "POD", value_parser = parse_replica_name)]
    pods: Vec<String>,
    /// Restart all collectors, or N of them with =N
    #[arg(long, value_name = "N", value_parser = parse_how_many, num_args = 0..=1, require_equals = true, default_missing_value = ALL)]
    collectors: Option<RestartCount>,
    /// Restart all learners, or N of them with =N
    #[arg(long, value_name = "N", value_parser = parse_how_many, num_args = 0..=1, require_equals = true, default_missing_value = ALL)]
    learners: Option<RestartCount>,
    #[command(flatten)]
    dry_run: DryRunFlag,
    /// Output mode. Use "-o name" for shorter output (resource/name)
    #[arg(short, long)]
    output: Option<NameFormat>,
    #[command(flatten)]
    waiting: WaitFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum NameFormat {
    /// Kind and name
    Name,
}

const ALL: &str = "all";

fn parse_how_many(text: &str) -> Result<RestartCount, String> {
    match text.parse() {
        Ok(count) if count >= 1 => Ok(RestartCount::First(count)),
        _ if text == ALL => Ok(RestartCount::All),
        _ => Err("must be at least 1; omit the number to restart all".to_owned()),
    }
}

impl Restart {
    fn selected_replicas(&self) -> Result<RestartSelection> {
        let flag = match (self.collectors, self.learners) {
            (Some(_), _) => Some("--collectors"),
            (None, Some(_)) => Some("--learners"),
            (None, None) => None,
        };
        match (&*self.pods, flag) {
            ([], None) => bail!("must specify replica names, --collectors or --learners"),
            ([], Some(_)) => Ok(RestartSelection::ByRole(Counts {
                collectors: self.collectors.unwrap_or_default(),
                learners: self.learners.unwrap_or_default(),
            })),
            ([first, ..], Some(flag)) if first.parse::<usize>().is_ok() => {
                bail!("the number needs an equals sign: {flag}={first}")
            }
            (_, Some(flag)) => bail!("replica names and {flag} cannot be given together"),
            (names, None) => Ok(RestartSelection::Named(names.to_vec())),
        }
    }

    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let which = self.selected_replicas()?;
        let cluster = globals.connect().await?;
        let job = get_job(&cluster, &self.job).await?;
        let pods = replicas_to_restart(&cluster, &job, &which).await?;
        if pods.is_empty() {
            eprintln!("No pods to restart.");
        }
        let mut code = ExitCode::SUCCESS;
        let mut deleted = Vec::new();
        let output = OutputFlags::names_only(self.output.is_some());
        let mut printer = Printer::new(&output, self.dry_run);
        for pod in pods {
            match delete_pod(&cluster, &pod, self.dry_run.get()).await {
                Ok(existed) => {
                    let done = if existed {
                        "restarted"
                    } else {
                        "already deleted"
                    };
                    for name in [&pod.name].into_iter().chain(&pod.others) {
                        printer.print_change(out, pod_object(name), done)?;
                    }
                    deleted.push(pod);
                }
                Err(error) => {
                    report_error(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        out.flush()?;
        if self.waiting.is_wanted() && self.dry_run.is_real() && !deleted.is_empty() {
            wait_until_ready(
                &cluster,
                &job,
                AlsoWait::Replacements(&deleted),
                self.waiting,
            )
            .await?;
        }
        Ok(code)
    }
}

fn pod_object(pod: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}})
}
