//! `kubectl di replicas`: the subcommands to list, scale and restart replicas.

mod list;
mod restart;
mod scale;

use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::{Args, Subcommand};
use di_client::{
    Cluster, Job, Progress, RestartedPod, WaitState, removing_replicas, replicas_ready_state,
    wait_for_job,
};

use crate::{
    globals::Globals,
    progress_bar::ProgressBar,
    wait_flags::{WaitFlags, unmet_condition},
};

/// List, scale or restart the replicas of a job.
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
    #[command(alias = "remove")]
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

/// The condition of a wait in addition to the readiness of every planned replica.
#[derive(Clone, Copy)]
enum AlsoWait<'a> {
    Nothing,
    /// These replicas are replaced.
    Replacements(&'a [RestartedPod]),
    /// The pods of removed replicas are deleted.
    Deletions,
}

/// Waits until every planned replica is ready and the additional condition holds.
async fn wait_until_ready(
    cluster: &Cluster,
    changed: &Job,
    also_wait: AlsoWait<'_>,
    waiting: WaitFlags,
) -> Result<()> {
    let message = format!("replicas of {} ready", changed.name());
    let bar = ProgressBar::with_count(message.clone());
    let generation = changed.metadata.generation;
    let removing = |job: &Job| match also_wait {
        AlsoWait::Deletions => removing_replicas(job).count(),
        AlsoWait::Nothing | AlsoWait::Replacements(_) => 0,
    };
    let old = match also_wait {
        AlsoWait::Replacements(old) => old,
        AlsoWait::Nothing | AlsoWait::Deletions => &[],
    };
    let check = |job: &Job| {
        bar.set_progress(Progress::of_job(job));
        let outlook = replicas_ready_state(job, generation, old);
        match removing(job) {
            0 => bar.set_message(message.clone()),
            count => bar.set_message(format!("{message}, {count} being deleted")),
        }
        match outlook {
            WaitState::Met if removing(job) > 0 => WaitState::Pending,
            outlook => outlook,
        }
    };
    let missing = |job: &Job| {
        let names: Vec<_> = removing_replicas(job).collect();
        match (job.problem_summary(), removing(job)) {
            (None, 1..) => format!(
                "{} of {} to be deleted",
                names.join(", "),
                job.resource_name()
            ),
            _ => unmet_condition(job),
        }
    };
    wait_for_job(cluster, changed.name(), waiting.deadline(), check, missing).await?;
    Ok(())
}
