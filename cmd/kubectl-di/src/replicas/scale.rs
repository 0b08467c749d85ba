use std::{io::Write, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Args;
use di_client::{Counts, await_scaled, scale};

use crate::{args::limit, globals::Globals, output::title};

/// Declare more collectors or learners.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Two more collectors
  kubectl di replicas add cartpole --collectors 2

  # One more of each, and wait until they are ready
  kubectl di replicas add cartpole --collectors 1 --learners 1 --wait --timeout=5m")]
pub struct Add {
    #[command(flatten)]
    change: Change,
}

/// Declare fewer collectors or learners.
///
/// Replicas that the coordinator requested at run time are not counted here: it lets them go itself.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Two collectors less
  kubectl di replicas delete cartpole --collectors 2

  # One less of each
  kubectl di replicas delete cartpole --collectors 1 --learners 1")]
pub struct Delete {
    #[command(flatten)]
    change: Change,
}

#[derive(Debug, Args)]
struct Change {
    /// Name of the job
    job: String,
    #[command(flatten)]
    by: By,
    /// Wait until every planned replica is ready
    #[arg(long)]
    wait: bool,
    /// How long to wait; 0 means without limit
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = limit)]
    timeout: Duration,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct By {
    /// How many collectors
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    collectors: Option<i32>,
    /// How many learners
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    learners: Option<i32>,
}

fn count(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(count) if count >= 1 => Ok(count),
        Ok(_) => Err("must be at least 1; add declares more, delete fewer".to_owned()),
        Err(_) => Err(format!("must be a number from 1 to {}", i32::MAX)),
    }
}

impl Add {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        self.change.run(1, globals, out).await
    }
}

impl Delete {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        self.change.run(-1, globals, out).await
    }
}

impl Change {
    async fn run(self, sign: i32, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let by = Counts {
            collectors: sign * self.by.collectors.unwrap_or(0),
            learners: sign * self.by.learners.unwrap_or(0),
        };
        let (job, changes) = scale(&cluster, &self.job, by).await?;
        let changes: Vec<_> = changes.iter().map(ToString::to_string).collect();
        writeln!(out, "{} scaled: {}", title(&job.object), changes.join(", "))?;
        out.flush()?;
        if self.wait {
            let timeout = Some(self.timeout).filter(|timeout| *timeout != Duration::MAX);
            await_scaled(&cluster, &job, timeout).await?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        change: Change,
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
