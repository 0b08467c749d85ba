use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::{Arg, ArgAction, Args, Command};

use crate::globals::Globals;

/// Print the list of flags inherited by all commands.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Print flags inherited by all commands
  kubectl di options

  # Use one of them
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
            out.write_all(format_flag(flag).as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Formats a flag with its default value as kubectl does.
fn format_flag(flag: &Arg) -> String {
    let long = flag.get_long().unwrap_or_default();
    let name = match flag.get_short() {
        Some(short) if long.len() > 1 => format!("-{short}, --{long}"),
        Some(short) => format!("-{short}, --{long}"),
        None => format!("--{long}"),
    };
    let default = match (flag.get_default_values().first(), flag.get_action()) {
        (_, ArgAction::SetTrue) => "false".to_owned(),
        (_, ArgAction::Append) => "[]".to_owned(),
        (Some(value), _) => value.to_string_lossy().into_owned(),
        (None, _) => "''".to_owned(),
    };
    let help = flag.get_help().map(ToString::to_string);
    format!("    {name}={default}:\n\t{}\n\n", help.unwrap_or_default())
}
