use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Result;
use clap::{Args, ValueEnum};
use clap_complete::env::Shells;

use crate::completion::COMPLETE_ENV;

/// The program that kubectl 1.26 or newer runs to complete `kubectl di`.
const FOR_KUBECTL: &str = include_str!("../kubectl_complete-di");

/// Output shell completion code for commands, flags and names.
///
/// To complete `kubectl di`, kubectl 1.26 or newer runs the program kubectl_complete-di from the
/// PATH: "kubectl" prints that program. The scripts of the shells complete kubectl-di.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Completion of kubectl di, in every shell with completion of kubectl
  kubectl di completion kubectl > ~/.local/bin/kubectl_complete-di
  chmod +x ~/.local/bin/kubectl_complete-di

  # Completion of kubectl-di in bash
  kubectl di completion bash > ~/.local/share/bash-completion/completions/kubectl-di

  # Completion of kubectl-di in fish
  kubectl di completion fish > ~/.config/fish/completions/kubectl-di.fish")]
pub struct Completion {
    /// Shell, or kubectl
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// The Bourne again shell
    Bash,
    /// The Z shell
    Zsh,
    /// The friendly interactive shell
    Fish,
    /// PowerShell
    Powershell,
    /// The program that kubectl runs
    Kubectl,
}

impl Completion {
    pub fn run(self, out: &mut impl Write) -> Result<ExitCode> {
        write_script(self.shell, out)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the completion script of a shell.
pub fn write_script(shell: Shell, out: &mut impl Write) -> io::Result<()> {
    let name = match shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
        Shell::Powershell => "powershell",
        Shell::Kubectl => return out.write_all(FOR_KUBECTL.as_bytes()),
    };
    let program = "kubectl-di";
    let mut text = Vec::new();
    if let Some(shell) = Shells::builtins().completer(name) {
        shell.write_registration(COMPLETE_ENV, program, program, program, &mut text)?;
    }
    out.write_all(&text)
}
