use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Result;
use clap::{Args, ValueEnum};
use clap_complete::env::Shells;

use crate::complete::VARIABLE;

/// What kubectl 1.26 or newer runs to complete what follows `kubectl di`.
const FOR_KUBECTL: &str = include_str!("../kubectl_complete-di");

/// Bash takes words apart where other shells do not, which the library's script leaves as it is.
const FOR_BASH: &str = include_str!("completion.bash");

/// Print what makes a shell complete commands, flags and names.
///
/// `kubectl di` itself is completed by kubectl 1.26 or newer, which asks a program kubectl_complete-di on the PATH: "kubectl" prints it. The
/// scripts of shells complete kubectl-di.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # For kubectl di, in every shell that completes kubectl
  kubectl di completion kubectl > ~/.local/bin/kubectl_complete-di
  chmod +x ~/.local/bin/kubectl_complete-di

  # For kubectl-di, in every bash
  kubectl di completion bash > ~/.local/share/bash-completion/completions/kubectl-di

  # For kubectl-di, in every fish
  kubectl di completion fish > ~/.config/fish/completions/kubectl-di.fish")]
pub struct Completion {
    /// Whose
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
    /// The program that kubectl asks
    Kubectl,
}

impl Completion {
    pub fn run(self, out: &mut impl Write) -> Result<ExitCode> {
        script(self.shell, out)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes what a shell needs.
pub fn script(shell: Shell, out: &mut impl Write) -> io::Result<()> {
    let name = match shell {
        Shell::Bash => return out.write_all(FOR_BASH.as_bytes()),
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
        Shell::Powershell => "powershell",
        Shell::Kubectl => return out.write_all(FOR_KUBECTL.as_bytes()),
    };
    let program = "kubectl-di";
    let mut text = Vec::new();
    if let Some(shell) = Shells::builtins().completer(name) {
        shell.write_registration(VARIABLE, program, program, program, &mut text)?;
    }
    out.write_all(&text)
}
