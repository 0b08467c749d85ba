use std::{io::Write, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use di_client::{Counts, ReplicaGroupRef, ScaleRequest, ScaledCount, scale_replicas};

use super::wait::{AlsoWait, wait_until_ready};
use crate::{
    flags::{
        dry_run::DryRunFlag,
        globals::Globals,
        names::{parse_job_name, parse_replica_name},
        parsers::parse_count,
        resources::Resources,
        wait::WaitFlags,
    },
    output::printer::{OutputFlags, Printer},
};

/// Increase the declared number of collectors or learners.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Add two collectors
  kubectl di replicas add cartpole --collectors 2

  # Add a learner with two GPUs, unlike the template
  kubectl di replicas add cartpole --learners 1 --gpus 2 --memory 16Gi

  # Add one of each, and wait until they are ready
  kubectl di replicas add cartpole --collectors 1 --learners 1 --wait --timeout=5m")]
pub struct Add {
    #[command(flatten)]
    counts: ReplicaCounts,
    #[command(flatten)]
    args: ScaleArgs,
}

/// Decrease the declared number of collectors or learners, or delete replicas by name.
///
/// With a count, replicas that are not ready are deleted first, then the newest. With --cpus,
/// --gpus or --memory, only replicas that were added with the same values are deleted. Replicas
/// that the coordinator requested, and adopted ones, are not counted: delete them through the
/// replica endpoint.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Delete two collectors
  kubectl di replicas delete cartpole --collectors 2

  # Delete this replica; the prefix with the name of the job is optional
  kubectl di replicas delete cartpole collector-x7k2p

  # Delete a learner that was added with two GPUs, and wait until it is deleted
  kubectl di replicas delete cartpole --learners 1 --gpus 2 --wait")]
pub struct Delete {
    #[command(flatten)]
    counts: OptionalCounts,
    #[command(flatten)]
    args: ScaleArgs,
    /// Names of replicas
    #[arg(value_name = "POD", value_parser = parse_replica_name, conflicts_with_all = ["collectors", "learners", "group", "cpus", "gpus", "memory"])]
    pods: Vec<String>,
}

/// Set the declared number of collectors or learners.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Scale to eight collectors
  kubectl di replicas set cartpole --collectors 8

  # Scale the group big to zero learners
  kubectl di replicas set cartpole --learners 0 --group big

  # Print the job that would be sent
  kubectl di replicas set cartpole --collectors 8 --dry-run=client -o yaml")]
pub struct Set {
    #[command(flatten)]
    counts: TargetCounts,
    #[command(flatten)]
    args: ScaleArgs,
}

#[derive(Debug, Args)]
struct ScaleArgs {
    /// Name of the job
    #[arg(value_parser = parse_job_name)]
    job: String,
    /// Replica group to scale, instead of the replicas that use the template's resources
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    #[command(flatten)]
    resources: Resources,
    #[command(flatten)]
    dry_run: DryRunFlag,
    #[command(flatten)]
    output: OutputFlags,
    #[command(flatten)]
    waiting: WaitFlags,
}

#[derive(Clone, Copy, Debug, Args)]
#[group(id = "counts", required = true, multiple = true)]
struct ReplicaCounts {
    /// Number of collectors
    #[arg(long, value_name = "N", value_parser = parse_positive_count, allow_negative_numbers = true)]
    collectors: Option<i32>,
    /// Number of learners
    #[arg(long, value_name = "N", value_parser = parse_positive_count, allow_negative_numbers = true)]
    learners: Option<i32>,
}

#[derive(Clone, Copy, Debug, Args)]
#[group(id = "optional-counts", multiple = true)]
struct OptionalCounts {
    /// Number of collectors
    #[arg(long, value_name = "N", value_parser = parse_positive_count, allow_negative_numbers = true)]
    collectors: Option<i32>,
    /// Number of learners
    #[arg(long, value_name = "N", value_parser = parse_positive_count, allow_negative_numbers = true)]
    learners: Option<i32>,
}

#[derive(Clone, Copy, Debug, Args)]
#[group(id = "target-counts", required = true, multiple = true)]
struct TargetCounts {
    /// Number of collectors
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    collectors: Option<i32>,
    /// Number of learners
    #[arg(long, value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    learners: Option<i32>,
}

fn parse_positive_count(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(count) if count >= 1 => Ok(count),
        Ok(_) => {
            Err("must be at least 1; use add to scale up, delete to scale down, set for an exact number".to_owned())
        }
        Err(_) => Err(format!("must be a number from 1 to {}", i32::MAX)),
    }
}

impl Add {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let counts = Counts {
            collectors: self.counts.collectors.unwrap_or(0),
            learners: self.counts.learners.unwrap_or(0),
        };
        let selector = self.args.group_ref(self.counts.learners.is_some())?;
        let request = ScaleRequest::By { counts, selector };
        self.args.run(request, globals, out).await
    }
}

impl Delete {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let counts = Counts {
            collectors: -self.counts.collectors.unwrap_or(0),
            learners: -self.counts.learners.unwrap_or(0),
        };
        let request = if self.pods.is_empty() {
            if counts == Counts::default() {
                bail!("must specify replica names, --collectors or --learners");
            }
            let selector = self.args.group_ref(self.counts.learners.is_some())?;
            ScaleRequest::By { counts, selector }
        } else {
            // An annotation of the job names the pods to delete. See docs/decisions/0014.
            ScaleRequest::RemoveNamed(self.pods)
        };
        self.args.run(request, globals, out).await
    }
}

impl Set {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let request = ScaleRequest::To {
            counts: Counts {
                collectors: self.counts.collectors,
                learners: self.counts.learners,
            },
            selector: self.args.group_ref(self.counts.learners.is_some())?,
        };
        self.args.run(request, globals, out).await
    }
}

impl ScaleArgs {
    /// The replica group to scale; replicas with their own resources form a group.
    fn group_ref(&self, learners: bool) -> Result<ReplicaGroupRef> {
        Ok(ReplicaGroupRef {
            group: self.group.clone(),
            resources: self.resources.for_roles(learners)?,
        })
    }

    async fn run(
        self,
        request: ScaleRequest,
        globals: &Globals,
        out: &mut impl Write,
    ) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let (job, changes) =
            scale_replicas(&cluster, &self.job, &request, self.dry_run.get()).await?;
        Printer::new(&self.output, self.dry_run).print_change(
            out,
            job.object.clone(),
            &describe_changes(&changes),
        )?;
        out.flush()?;
        if self.waiting.is_wanted() && self.dry_run.is_real() {
            let scales_down = changes.iter().any(|change| change.to < change.from);
            let also_wait = if scales_down {
                AlsoWait::Deletions
            } else {
                AlsoWait::Nothing
            };
            wait_until_ready(&cluster, &job, also_wait, self.waiting).await?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn describe_changes(changes: &[ScaledCount]) -> String {
    if changes.is_empty() {
        return "unchanged".to_owned();
    }
    let changes: Vec<_> = changes.iter().map(ToString::to_string).collect();
    format!("scaled: {}", changes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        add: Add,
    }

    #[test]
    fn count_below_one_is_rejected_with_the_minimum() {
        for count in ["-1", "0"] {
            let words = ["add", "job", "--collectors", count];
            let error = <Cli as clap::Parser>::try_parse_from(words).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("must be at least 1"), "{text}");
            assert!(!text.contains("tip:"), "{text}");
        }
    }
}
