//! `di-orchestrator crds`: prints the custom resource definitions.

use std::{
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::Args;

/// Prints the custom resource definitions as YAML.
#[derive(Debug, Args)]
pub struct Crds {
    /// Write one file each into this folder instead
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl Crds {
    /// Prints or writes them.
    pub fn run(&self) -> Result<()> {
        match &self.output {
            Some(dir) => write(dir),
            None => match print(&mut io::stdout().lock()) {
                // Its reader has seen enough, as `head` does.
                Err(error) if is_broken_pipe(&error) => Ok(()),
                printed => printed,
            },
        }
    }
}

fn print(out: &mut impl Write) -> Result<()> {
    for crd in di_api::crds() {
        let yaml = serde_saphyr::to_string(&crd).context("cannot write YAML")?;
        write!(out, "---\n{yaml}").context("cannot print")?;
    }
    out.flush().context("cannot print")
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn write(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for crd in di_api::crds() {
        let path = dir.join(format!("{}.yaml", crd.spec.names.plural));
        let yaml = serde_saphyr::to_string(&crd).context("cannot write YAML")?;
        std::fs::write(&path, yaml).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic is how a test fails

    use super::*;

    #[test]
    fn the_folder_is_made() {
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
    fn a_reader_that_has_seen_enough_is_told_from_a_fault() {
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
            &print(&mut Closed(ErrorKind::BrokenPipe)).unwrap_err()
        ));
        assert!(!is_broken_pipe(
            &print(&mut Closed(ErrorKind::StorageFull)).unwrap_err()
        ));
    }
}
