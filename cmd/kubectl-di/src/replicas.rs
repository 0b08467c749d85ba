//! `kubectl di replicas`: one file for each of its verbs.

mod list;
mod scale;

use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::globals::Globals;

/// Show a job's replicas, or change how many are declared.
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
}

impl Replicas {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        match self.command {
            Command::List(verb) => verb.run(globals, out).await,
            Command::Add(verb) => verb.run(globals, out).await,
            Command::Delete(verb) => verb.run(globals, out).await,
        }
    }
}
