//! `kubectl di replicas`: one file for each of its verbs.

mod list;
mod restart;
mod scale;

use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::{Args, Subcommand};
use di_client::{Cluster, Job, Outlook, Progress, Restarted, leaving, replicas_are_ready, until};

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

/// What is waited for besides that every planned replica is ready.
#[derive(Clone, Copy)]
enum Besides<'a> {
    Nothing,
    /// None of these is wanted any more.
    Replaced(&'a [Restarted]),
    /// Those that were let go of are gone.
    Gone,
}

/// Waits until every planned replica is ready, and for what else is to be.
async fn until_ready(
    cluster: &Cluster,
    changed: &Job,
    besides: Besides<'_>,
    waiting: Waiting,
) -> Result<()> {
    let what = format!("replicas of {} ready", changed.name());
    let bar = Bar::new(what.clone());
    let generation = changed.metadata.generation;
    let going = |job: &Job| match besides {
        Besides::Gone => leaving(job).count(),
        Besides::Nothing | Besides::Replaced(_) => 0,
    };
    let old = match besides {
        Besides::Replaced(old) => old,
        Besides::Nothing | Besides::Gone => &[],
    };
    let look = |job: &Job| {
        bar.show(Progress::of(job));
        let outlook = replicas_are_ready(job, generation, old);
        match going(job) {
            0 => bar.say(what.clone()),
            going => bar.say(format!("{what}, {going} to go")),
        }
        match outlook {
            Outlook::Met if going(job) > 0 => Outlook::Open,
            outlook => outlook,
        }
    };
    let missing = |job: &Job| {
        let names: Vec<_> = leaving(job).collect();
        match (job.trouble(), going(job)) {
            (None, 1..) => format!("{} of {} to go", names.join(", "), job.title()),
            _ => condition_on(job),
        }
    };
    until(cluster, changed.name(), waiting.deadline(), look, missing).await?;
    Ok(())
}
