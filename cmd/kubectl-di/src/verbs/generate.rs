use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::completion::script::{Shell, write_script};

/// Write man pages and shell completions for packages of this program.
#[derive(Debug, Args)]
pub struct Generate {
    /// Directory to write to, such as /usr/local
    #[arg(value_name = "DIR")]
    prefix: PathBuf,
}

impl Generate {
    /// Writes the files for this program, whose arguments are `command`.
    pub fn run(self, command: clap::Command) -> Result<ExitCode> {
        let man = self.prefix.join("share/man/man1");
        create_directory(&man)?;
        // Unlike the help of a command, a man page describes the global flags.
        let described = command.mut_args(|arg| arg.hide_short_help(false));
        clap_mangen::generate_to(described, &man)
            .with_context(|| format!("cannot write to {}", man.display()))?;
        for shell in Shell::value_variants() {
            let file = match shell {
                Shell::Bash => "share/bash-completion/completions/kubectl-di",
                Shell::Zsh => "share/zsh/site-functions/_kubectl-di",
                Shell::Fish => "share/fish/vendor_completions.d/kubectl-di.fish",
                // These have no standard directory for completions.
                Shell::Powershell | Shell::Kubectl => continue,
            };
            let path = self.prefix.join(file);
            create_directory(path.parent().unwrap_or(&self.prefix))?;
            let mut text = Vec::new();
            write_script(*shell, &mut text)?;
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn create_directory(directory: &std::path::Path) -> Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create directory {}", directory.display()))
}
