//! `kubectl di replicas`: one file for each of its verbs.

mod list;
mod restart;
mod scale;

use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::{Args, Subcommand};
use di_client::{Cluster, Job, Progress, Restarted, replicas_are_ready, until};

use crate::{
    globals::Globals,
    waiting::{Bar, Waiting, condition_on},
};

/// Show a job's replicas, change how many are declared, or replace some.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl di replicas list cartpole
  kubectl di replicas add cartpole --collectors 2")]
pub struct Replicas {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(list::List),
    Add(scale::Add),
    Delete(scale::Delete),
    Set(scale::Set),
    Restart(restart::Restart),
}

impl Replicas {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        match self.command {
            Command::List(verb) => verb.run(globals, out).await,
            Command::Add(verb) => verb.run(globals, out).await,
            Command::Delete(verb) => verb.run(globals, out).await,
            Command::Set(verb) => verb.run(globals, out).await,
            Command::Restart(verb) => verb.run(globals, out).await,
        }
    }
}

/// Waits until every planned replica is ready, and none of `old` is among them.
async fn until_ready(
    cluster: &Cluster,
    changed: &Job,
    old: &[Restarted],
    waiting: Waiting,
) -> Result<()> {
    let bar = Bar::new(format!("replicas of {} ready", changed.name()));
    let generation = changed.metadata.generation;
    let look = |job: &Job| {
        bar.show(Progress::of(job));
        replicas_are_ready(job, generation, old)
    };
    until(
        cluster,
        changed.name(),
        waiting.deadline(),
        look,
        condition_on,
    )
    .await?;
    Ok(())
}
