//! `kubectl di replicas`: the subcommands to list, scale and restart replicas.

mod list;
mod restart;
mod scale;
mod wait;

use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::flags::globals::Globals;

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
