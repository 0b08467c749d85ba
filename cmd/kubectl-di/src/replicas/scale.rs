use std::{io::Write, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use di_client::{Bucket, Counts, Scale, Scaled, scale};

use super::{Besides, until_ready};
use crate::{
    args::count_from_zero,
    dry_run::DryRunFlag,
    globals::Globals,
    names::{job_name, replica_name},
    printed::{Output, Printer},
    resources::Resources,
    waiting::Waiting,
};

/// Declare more collectors or learners.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Two more collectors
  kubectl di replicas add cartpole --collectors 2

  # A learner of two GPUs beside those that the template makes
  kubectl di replicas add cartpole --learners 1 --gpus 2 --memory 16Gi

  # One more of each, and wait until they are ready
  kubectl di replicas add cartpole --collectors 1 --learners 1 --wait --timeout=5m")]
pub struct Add {
    #[command(flatten)]
    by: By,
    #[command(flatten)]
    change: Change,
}

/// Declare fewer collectors or learners, or let go of some by name.
///
/// By count, those go first that are not ready, then the newest. With --cpus, --gpus or --memory those are meant that add declared with the same.
/// Replicas that were requested through the replica endpoint, or adopted beyond what
/// is declared, are not counted here: they go through it alone.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Two collectors less
  kubectl di replicas delete cartpole --collectors 2

  # Exactly this one, and one less; the job's name may be left out of it
  kubectl di replicas delete cartpole collector-x7k2p

  # A learner less of those that were added with two GPUs, and wait until it is gone
  kubectl di replicas delete cartpole --learners 1 --gpus 2 --wait")]
pub struct Delete {
    #[command(flatten)]
    by: MaybeBy,
    #[command(flatten)]
    change: Change,
    /// Names of replicas, after that of the job
    #[arg(value_name = "POD", value_parser = replica_name, conflicts_with_all = ["collectors", "learners", "group", "cpus", "gpus", "memory"])]
    pods: Vec<String>,
}

/// Declare how many collectors or learners there are.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Eight collectors
  kubectl di replicas set cartpole --collectors 8

  # No learners of the group big
  kubectl di replicas set cartpole --learners 0 --group big

  # See what would be sent
  kubectl di replicas set cartpole --collectors 8 --dry-run=client -o yaml")]
pub struct Set {
    #[command(flatten)]
    to: To,
    #[command(flatten)]
    change: Change,
}

#[derive(Debug, Args)]
struct Change {
    /// Name of the job
    #[arg(value_parser = job_name)]
    job: String,
    /// The declared group that is meant, instead of replicas as the template has them
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    #[command(flatten)]
    resources: Resources,
    #[command(flatten)]
    dry_run: DryRunFlag,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Clone, Copy, Debug, Args)]
#[group(id = "by", required = true, multiple = true)]
struct By {
    /// How many collectors
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    collectors: Option<i32>,
    /// How many learners
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    learners: Option<i32>,
}

#[derive(Clone, Copy, Debug, Args)]
#[group(id = "maybe-by", multiple = true)]
struct MaybeBy {
    /// How many collectors
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    collectors: Option<i32>,
    /// How many learners
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    learners: Option<i32>,
}

#[derive(Clone, Copy, Debug, Args)]
#[group(id = "to", required = true, multiple = true)]
struct To {
    /// How many collectors
    #[arg(long, value_name = "N", value_parser = count_from_zero, allow_negative_numbers = true)]
    collectors: Option<i32>,
    /// How many learners
    #[arg(long, value_name = "N", value_parser = count_from_zero, allow_negative_numbers = true)]
    learners: Option<i32>,
}

fn count(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(count) if count >= 1 => Ok(count),
        Ok(_) => {
            Err("must be at least 1; add declares more, delete fewer, set a number".to_owned())
        }
        Err(_) => Err(format!("must be a number from 1 to {}", i32::MAX)),
    }
}

impl Add {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let counts = Counts {
            collectors: self.by.collectors.unwrap_or(0),
            learners: self.by.learners.unwrap_or(0),
        };
        let which = self.change.which(self.by.learners.is_some())?;
        let wish = Scale::By { counts, which };
        self.change.run(wish, globals, out).await
    }
}

impl Delete {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let counts = Counts {
            collectors: -self.by.collectors.unwrap_or(0),
            learners: -self.by.learners.unwrap_or(0),
        };
        let wish = if self.pods.is_empty() {
            if counts == Counts::default() {
                bail!("must specify names of replicas, or --collectors or --learners");
            }
            let which = self.change.which(self.by.learners.is_some())?;
            Scale::By { counts, which }
        } else {
            Scale::Without(self.pods)
        };
        self.change.run(wish, globals, out).await
    }
}

impl Set {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let wish = Scale::To {
            counts: Counts {
                collectors: self.to.collectors,
                learners: self.to.learners,
            },
            which: self.change.which(self.to.learners.is_some())?,
        };
        self.change.run(wish, globals, out).await
    }
}

impl Change {
    /// Of which replicas; those with other resources than the template's are in a group of theirs.
    fn which(&self, learners: bool) -> Result<Bucket> {
        Ok(Bucket {
            group: self.group.clone(),
            resources: self.resources.of_roles(learners)?,
        })
    }

    async fn run(self, wish: Scale, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let (job, changes) = scale(&cluster, &self.job, &wish, self.dry_run.get()).await?;
        Printer::new(&self.output, self.dry_run).print(out, job.object.clone(), &told(&changes))?;
        out.flush()?;
        if self.waiting.is_wanted() && self.dry_run.is_real() {
            let fewer = changes.iter().any(|change| change.to < change.from);
            let besides = if fewer {
                Besides::Gone
            } else {
                Besides::Nothing
            };
            until_ready(&cluster, &job, besides, self.waiting).await?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn told(changes: &[Scaled]) -> String {
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
    fn a_count_below_one_is_told_what_it_must_be() {
        for count in ["-1", "0"] {
            let words = ["add", "job", "--collectors", count];
            let error = <Cli as clap::Parser>::try_parse_from(words).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("must be at least 1"), "{text}");
            assert!(!text.contains("tip:"), "{text}");
        }
    }
}
