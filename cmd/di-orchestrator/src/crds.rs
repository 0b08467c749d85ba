//! `di-orchestrator crds`: prints the custom resource definitions.

use std::path::PathBuf;

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
        for crd in di_api::crds() {
            let yaml = serde_saphyr::to_string(&crd).context("cannot write YAML")?;
            match &self.output {
                Some(dir) => {
                    let path = dir.join(format!("{}.yaml", crd.spec.names.plural));
                    std::fs::write(&path, yaml)
                        .with_context(|| format!("cannot write {}", path.display()))?;
                }
                None => print!("---\n{yaml}"),
            }
        }
        Ok(())
    }
}
