use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::{
    args,
    completion::{Shell, script},
};

/// Write man pages and completions, for those who package this program.
#[derive(Debug, Args)]
pub struct Generate {
    /// Folder that is to hold them, as below /usr/local
    #[arg(value_name = "DIR")]
    prefix: PathBuf,
}

impl Generate {
    pub fn run(self) -> Result<ExitCode> {
        let man = self.prefix.join("share/man/man1");
        make(&man)?;
        // A manual tells of the flags, too, that the help of a command leaves to `options`.
        let all = args::command();
        let all = all.mut_args(|arg| arg.hide_short_help(false).hide_long_help(false));
        clap_mangen::generate_to(all, &man)
            .with_context(|| format!("cannot write to {}", man.display()))?;
        for shell in Shell::value_variants() {
            let place = match shell {
                Shell::Bash => "share/bash-completion/completions/kubectl-di",
                Shell::Zsh => "share/zsh/site-functions/_kubectl-di",
                Shell::Fish => "share/fish/vendor_completions.d/kubectl-di.fish",
                // Neither has a folder that it reads.
                Shell::Powershell | Shell::Kubectl => continue,
            };
            let path = self.prefix.join(place);
            make(path.parent().unwrap_or(&self.prefix))?;
            let mut text = Vec::new();
            script(*shell, &mut text)?;
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn make(folder: &std::path::Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}
