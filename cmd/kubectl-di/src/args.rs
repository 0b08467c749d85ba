use std::{ffi::OsString, io::Write, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{
    completion, create, delete, describe, doctor, events, exec, generate, get,
    globals::Globals,
    install, life, logs, mistakes, options, port_forward, replicas, restart, suspend, top,
    uninstall, upgrade, validate, version, wait,
    words::{called, plain},
};

/// Create, watch, scale and end reinforcement-learning jobs (DIJobs).
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-di",
    bin_name = "kubectl di",
    color = ColorChoice::Never,
    disable_help_subcommand = true,
    after_help = "Examples:
  kubectl di create -f cartpole.yaml
  kubectl di get -w
  kubectl di replicas add cartpole --collectors 2
  kubectl di logs cartpole -f"
)]
pub struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Create(Box<create::Create>),
    Validate(validate::Validate),
    Wait(wait::Wait),
    Suspend(suspend::Suspend),
    Resume(suspend::Resume),
    Restart(restart::Restart),
    Pause(life::Pause),
    Start(life::Start),
    Status(life::Status),
    #[command(aliases = ["list", "ls"])]
    Get(get::Get),
    Describe(describe::Describe),
    Delete(delete::Delete),
    Replicas(replicas::Replicas),
    Logs(logs::Logs),
    Events(events::Events),
    Exec(exec::Exec),
    PortForward(port_forward::PortForward),
    Top(top::Top),
    Version(version::Version),
    Install(install::Install),
    Upgrade(upgrade::Upgrade),
    Uninstall(uninstall::Uninstall),
    Doctor(doctor::Doctor),
    Completion(completion::Completion),
    Options(options::Options),
    #[command(name = "__generate", hide = true)]
    Generate(generate::Generate),
}

/// All that can be typed. As with kubectl, the help of a command leaves out what every command takes, and says who lists that.
pub fn command() -> clap::Command {
    fn told(command: clap::Command) -> clap::Command {
        let help = command.get_after_help().map(ToString::to_string);
        let command = command.after_help(help.unwrap_or_default() + GLOBALS_ELSEWHERE);
        command.mut_subcommands(told)
    }
    // As in kubectl, the last of several values counts.
    let all = told(Cli::command()).args_override_self(true);
    all.mut_args(|arg| {
        let global = arg.is_global_set();
        arg.hide_short_help(global).hide_long_help(global)
    })
}

const GLOBALS_ELSEWHERE: &str = "

Use \"kubectl di options\" for a list of global command-line options (applies to all commands).";

/// Why there is nothing to do.
#[derive(Debug)]
pub enum Misread {
    /// Help or the version was asked for.
    Asked(clap::Error),
    /// What is wrong with what was typed, in lines.
    Mistake(String),
}

impl Cli {
    /// Reads what was typed.
    pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, Misread> {
        let mut command = command();
        let words: Vec<_> = words.into_iter().collect();
        let matches = command.try_get_matches_from_mut(plain(&command, words.clone()));
        let read = matches.and_then(|matches| Self::from_arg_matches(&matches));
        read.map_err(|error| {
            let error = error.format(&mut command);
            if error.use_stderr() {
                Misread::Mistake(mistakes::told(&error, &called(&command, words)))
            } else {
                Misread::Asked(error)
            }
        })
    }

    /// Does what was asked; data goes to `out`, everything else to stderr.
    pub async fn run(self, out: &mut impl Write) -> Result<ExitCode> {
        let globals = &self.globals;
        let code = match self.command {
            Command::Create(verb) => verb.run(globals, out).await,
            Command::Validate(verb) => verb.run(out),
            Command::Wait(verb) => verb.run(globals, out).await,
            Command::Suspend(verb) => verb.run(globals, out).await,
            Command::Resume(verb) => verb.run(globals, out).await,
            Command::Restart(verb) => verb.run(globals, out).await,
            Command::Pause(verb) => verb.run(globals, out).await,
            Command::Start(verb) => verb.run(globals, out).await,
            Command::Status(verb) => verb.run(globals, out).await,
            Command::Get(verb) => verb.run(globals, out).await,
            Command::Describe(verb) => verb.run(globals, out).await,
            Command::Delete(verb) => verb.run(globals, out).await,
            Command::Replicas(verb) => verb.run(globals, out).await,
            Command::Logs(verb) => verb.run(globals, out).await,
            Command::Events(verb) => verb.run(globals, out).await,
            Command::Exec(verb) => verb.run(globals, out).await,
            Command::PortForward(verb) => verb.run(globals, out).await,
            Command::Top(verb) => verb.run(globals, out).await,
            Command::Version(verb) => verb.run(globals, out).await,
            Command::Options(verb) => verb.run(out),
            Command::Install(verb) => verb.run(globals, out).await,
            Command::Upgrade(verb) => verb.run(globals, out).await,
            Command::Uninstall(verb) => verb.run(globals, out).await,
            Command::Doctor(verb) => verb.run(globals, out).await,
            Command::Completion(verb) => verb.run(out),
            Command::Generate(verb) => verb.run(),
        }?;
        globals.heed_warnings()?;
        Ok(code)
    }
}

/// Reads a time span as kubectl does: `30s`, `5m`, `1h30m`; a bare number counts seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let signed: jiff::SignedDuration = text
        .parse()
        .map_err(|_| "expected a time span as 30s, 5m or 1h30m".to_owned())?;
    Duration::try_from(signed).map_err(|_| "must not be negative".to_owned())
}

/// The same, where 0 means without limit.
pub fn limit(text: &str) -> Result<Duration, String> {
    let limit = duration(text)?;
    Ok(if limit.is_zero() {
        Duration::MAX
    } else {
        limit
    })
}

/// Reads a number of something there may be none of.
pub fn count_from_zero(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(count) if count >= 0 => Ok(count),
        Ok(_) => Err("must not be negative".to_owned()),
        Err(_) => Err(format!("must be a number from 0 to {}", i32::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_and_they_parse() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string);
            if command.is_hide_set() {
                return;
            }
            if command.has_subcommands() {
                command.get_subcommands().for_each(check);
            }
            let help = help.unwrap_or_default();
            let examples: Vec<_> = help
                .lines()
                .flat_map(|line| line.split(" | "))
                .filter_map(|line| line.split(" > ").next())
                .map(str::trim)
                .filter(|line| line.starts_with("kubectl di "))
                .collect();
            assert!(examples.len() >= 2, "{}: {help}", command.get_name());
            for example in examples {
                let words = example.split_whitespace().skip(1);
                if let Err(error) = Cli::try_parse_from(words) {
                    panic!("{example}: {error}");
                }
            }
        }
        check(&Cli::command());
    }

    #[test]
    fn time_spans_are_read_as_kubectl_reads_them() {
        for (text, seconds) in [
            ("30", 30),
            ("30s", 30),
            ("5m", 300),
            ("1h30m", 5400),
            ("0", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert!(duration("-5m").is_err());
        assert!(duration("soon").is_err());
        assert_eq!(limit("0"), Ok(Duration::MAX));
    }
}
