use std::{ffi::OsString, io::Write, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{
    clap_errors,
    cmdline::{command_path, normalize_args},
    completion, create, delete, describe, doctor, events, exec, generate, get,
    globals::Globals,
    install, lifecycle, logs, options, port_forward, replicas, restart, suspend, top, uninstall,
    upgrade, validate, version, wait,
};

/// Create, watch, scale and delete reinforcement-learning jobs (DIJobs).
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
    Pause(lifecycle::Pause),
    Start(lifecycle::Start),
    Status(lifecycle::Status),
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

/// Builds the clap command. As in kubectl, the help of a command omits the global options.
pub fn build_command() -> clap::Command {
    fn add_global_options_hint(command: clap::Command) -> clap::Command {
        let help = command.get_after_help().map(ToString::to_string);
        let command = command.after_help(help.unwrap_or_default() + GLOBAL_OPTIONS_HINT);
        command.mut_subcommands(add_global_options_hint)
    }
    // As in kubectl, the last value of a repeated flag is used.
    let root = add_global_options_hint(Cli::command()).args_override_self(true);
    root.mut_args(|arg| {
        let global = arg.is_global_set();
        arg.hide_short_help(global).hide_long_help(global)
    })
}

const GLOBAL_OPTIONS_HINT: &str = "

Use \"kubectl di options\" for a list of global command-line options (applies to all commands).";

/// The reasons why the arguments name no command to run.
#[derive(Debug)]
pub enum ParseError {
    /// The user requested help.
    Help(clap::Error),
    /// The arguments are invalid; the lines to print.
    Usage(String),
}

impl Cli {
    /// Parses the command line.
    pub fn parse_args(words: impl IntoIterator<Item = OsString>) -> Result<Self, ParseError> {
        let mut command = build_command();
        let words: Vec<_> = words.into_iter().collect();
        let matches = command.try_get_matches_from_mut(normalize_args(&command, words.clone()));
        let parsed = matches.and_then(|matches| Self::from_arg_matches(&matches));
        parsed.map_err(|error| {
            let error = error.format(&mut command);
            if error.use_stderr() {
                ParseError::Usage(clap_errors::format_error(
                    &error,
                    &command_path(&command, words),
                ))
            } else {
                ParseError::Help(error)
            }
        })
    }

    /// Runs the command. Data is written to `out`, messages to stderr.
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
        globals.fail_on_warnings()?;
        Ok(code)
    }
}

/// Parses a duration as kubectl does: `30s`, `5m`, `1h30m`; a number without a unit is in seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let signed: jiff::SignedDuration = text
        .parse()
        .map_err(|_| "expected a duration such as 30s, 5m or 1h30m".to_owned())?;
    Duration::try_from(signed).map_err(|_| "must not be negative".to_owned())
}

/// Parses a timeout; zero means no timeout.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_duration(text)?;
    Ok(if timeout.is_zero() {
        Duration::MAX
    } else {
        timeout
    })
}

/// Parses a count that may be zero.
pub fn parse_count(text: &str) -> Result<i32, String> {
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
    fn clap_command_is_consistent() {
        build_command().debug_assert();
    }

    #[test]
    fn help_of_every_command_has_examples_that_parse() {
        fn check_command(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string);
            if command.is_hide_set() {
                return;
            }
            if command.has_subcommands() {
                command.get_subcommands().for_each(check_command);
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
        check_command(&Cli::command());
    }

    #[test]
    fn durations_are_parsed_like_in_kubectl() {
        for (text, seconds) in [
            ("30", 30),
            ("30s", 30),
            ("5m", 300),
            ("1h30m", 5400),
            ("0", 0),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_secs(seconds)),
                "{text}"
            );
        }
        assert!(parse_duration("-5m").is_err());
        assert!(parse_duration("soon").is_err());
        assert_eq!(parse_timeout("0"), Ok(Duration::MAX));
    }
}
