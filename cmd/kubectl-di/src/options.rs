use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::{Arg, ArgAction, Args, Command};

use crate::globals::Globals;

/// List the flags that every command takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # All of them
  kubectl di options

  # One of them, in use
  kubectl di options --namespace team-rl")]
pub struct Options {}

impl Options {
    #[allow(clippy::unused_self)] // as the other verbs
    pub fn run(self, out: &mut impl Write) -> Result<ExitCode> {
        writeln!(out, "The following options can be passed to any command:\n")?;
        let globals = Globals::augment_args(Command::new("globals"));
        let mut flags: Vec<_> = globals.get_arguments().collect();
        flags.sort_by_key(|flag| flag.get_long());
        for flag in flags {
            out.write_all(entry(flag).as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A flag as kubectl lists it, with what it is when it is not given.
fn entry(flag: &Arg) -> String {
    let long = flag.get_long().unwrap_or_default();
    let name = match flag.get_short() {
        Some(short) if long.len() > 1 => format!("-{short}, --{long}"),
        Some(short) => format!("-{short}, --{long}"),
        None => format!("--{long}"),
    };
    let unless_given = match (flag.get_default_values().first(), flag.get_action()) {
        (_, ArgAction::SetTrue) => "false".to_owned(),
        (_, ArgAction::Append) => "[]".to_owned(),
        (Some(value), _) => value.to_string_lossy().into_owned(),
        (None, _) => "''".to_owned(),
    };
    let help = flag.get_help().map(ToString::to_string);
    format!(
        "    {name}={unless_given}:\n\t{}\n\n",
        help.unwrap_or_default()
    )
}
