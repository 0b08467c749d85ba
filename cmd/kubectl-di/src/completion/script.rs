use std::io::{self, Write};

use clap::ValueEnum;
use clap_complete::env::Shells;

/// The environment variable that the scripts set.
pub const COMPLETE_ENV: &str = "KUBECTL_DI_COMPLETE";

/// The program that kubectl 1.26 or newer runs to complete `kubectl di`.
const FOR_KUBECTL: &str = include_str!("../../kubectl_complete-di");

/// A shell, or kubectl.
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
