use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;

use crate::completion::script::{Shell, write_script};

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

impl Completion {
    pub fn run(self, out: &mut impl Write) -> Result<ExitCode> {
        write_script(self.shell, out)?;
        Ok(ExitCode::SUCCESS)
    }
}
