use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{
    flags::globals::Globals,
    verbs::{
        completion, create, dashboard, describe, doctor, events, exec, failures, generate, get,
        install, lifecycle, logs, port_forward, queue, replicas, restart, suspend, top, uninstall,
        upgrade, validate, version, wait,
    },
};

/// Create, watch and scale reinforcement-learning jobs (DIJobs).
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-di",
    bin_name = "kubectl di",
    color = ColorChoice::Never,
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
    Queue(queue::Queue),
    Replicas(replicas::Replicas),
    Logs(logs::Logs),
    Events(events::Events),
    Failures(failures::Failures),
    Exec(exec::Exec),
    PortForward(port_forward::PortForward),
    Top(top::Top),
    Dashboard(dashboard::Dashboard),
    Version(version::Version),
    Install(install::Install),
    Upgrade(upgrade::Upgrade),
    Uninstall(uninstall::Uninstall),
    Doctor(doctor::Doctor),
    Completion(completion::Completion),
    #[command(name = "__generate", hide = true)]
    Generate(generate::Generate),
}

/// Builds the clap command. `-h` omits the global flags.
pub fn build_command() -> clap::Command {
    // As in kubectl, the last value of a repeated flag is used.
    let root = Cli::command().args_override_self(true);
    root.mut_args(|arg| {
        let global = arg.is_global_set();
        arg.hide_short_help(global)
    })
}

impl Cli {
    /// Parses the command line. Prints help and errors, and ends the process after them.
    pub fn parse_args() -> Self {
        let mut command = build_command();
        let matches = command.get_matches_mut();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
    }

    /// Runs the command. Data is written to `out`, messages to stderr.
    pub async fn run(self, out: &mut impl Write) -> Result<ExitCode> {
        let globals = &self.globals;
        match self.command {
            Command::Create(verb) => verb.run(globals, out).await,
            Command::Validate(verb) => verb.run(globals, out).await,
            Command::Wait(verb) => verb.run(globals, out).await,
            Command::Suspend(verb) => verb.run(globals, out).await,
            Command::Resume(verb) => verb.run(globals, out).await,
            Command::Restart(verb) => verb.run(globals, out).await,
            Command::Pause(verb) => verb.run(globals, out).await,
            Command::Start(verb) => verb.run(globals, out).await,
            Command::Status(verb) => verb.run(globals, out).await,
            Command::Get(verb) => verb.run(globals, out).await,
            Command::Describe(verb) => verb.run(globals, out).await,
            Command::Queue(verb) => verb.run(globals, out).await,
            Command::Replicas(verb) => verb.run(globals, out).await,
            Command::Logs(verb) => verb.run(globals, out).await,
            Command::Events(verb) => verb.run(globals, out).await,
            Command::Failures(verb) => verb.run(globals, out).await,
            Command::Exec(verb) => verb.run(globals, out).await,
            Command::PortForward(verb) => verb.run(globals, out).await,
            Command::Top(verb) => verb.run(globals, out).await,
            Command::Dashboard(verb) => verb.run(globals, out).await,
            Command::Version(verb) => verb.run(globals, out).await,
            Command::Install(verb) => verb.run(globals, out).await,
            Command::Upgrade(verb) => verb.run(globals, out).await,
            Command::Uninstall(verb) => verb.run(globals, out).await,
            Command::Doctor(verb) => verb.run(globals, out).await,
            Command::Completion(verb) => verb.run(out),
            Command::Generate(verb) => verb.run(build_command()),
        }
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
}
