//! `di-orchestrator crds`: prints the custom resource definitions.

use std::{
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::Args;

/// Print the custom resource definitions as YAML.
#[derive(Debug, Args)]
pub struct Crds {
    /// Write one file per definition into this directory instead of stdout
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl Crds {
    /// Prints the definitions or writes them to files.
    pub fn run(&self) -> Result<()> {
        match &self.output {
            Some(dir) => write_crds(dir),
            None => match print_crds(&mut io::stdout().lock()) {
                // The reader closed the pipe, as `head` does after its last line.
                Err(error) if is_broken_pipe(&error) => Ok(()),
                printed => printed,
            },
        }
    }
}

fn print_crds(out: &mut impl Write) -> Result<()> {
    for crd in di_api::crds() {
        let yaml = serde_saphyr::to_string(&crd).context("cannot convert a definition to YAML")?;
        write!(out, "---\n{yaml}").context("cannot write to stdout")?;
    }
    out.flush().context("cannot write to stdout")
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn write_crds(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)
        .with_context(|| format!("cannot create directory {}", dir.display()))?;
    for crd in di_api::crds() {
        let path = dir.join(format!("{}.yaml", crd.spec.names.plural));
        let yaml = serde_saphyr::to_string(&crd).context("cannot convert a definition to YAML")?;
        std::fs::write(&path, yaml).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic is how a test fails

    use super::*;

    #[test]
    fn output_directory_is_created() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("new/crds");
        let crds = Crds {
            output: Some(output.clone()),
        };
        crds.run().unwrap();
        for plural in ["dijobs", "aggregatorconfigs"] {
            assert!(output.join(format!("{plural}.yaml")).is_file());
        }
    }

    #[test]
    fn broken_pipe_is_not_an_error_but_a_full_disk_is() {
        struct Closed(ErrorKind);
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert!(is_broken_pipe(
            &print_crds(&mut Closed(ErrorKind::BrokenPipe)).unwrap_err()
        ));
        assert!(!is_broken_pipe(
            &print_crds(&mut Closed(ErrorKind::StorageFull)).unwrap_err()
        ));
    }
}
