use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{check, is_ours};

use crate::{
    manifests::Manifests,
    output::{report, title},
};

/// Check manifests of DIJobs and AggregatorConfigs without a cluster, as the orchestrator's webhook would.
///
/// Every fault of every document is told. Manifests of the kind NerveXJob are checked as what they are converted to.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Check a manifest
  kubectl di validate -f cartpole.yaml

  # Check all that is in a directory and those in it
  kubectl di validate -f jobs -R

  # Check what another program writes
  cat cartpole.yaml | kubectl di validate -f -")]
#[command(mut_arg("filename", |arg| arg.required(true)))]
pub struct Validate {
    #[command(flatten)]
    manifests: Manifests,
}

impl Validate {
    pub fn run(self, out: &mut impl Write) -> Result<ExitCode> {
        let documents = self.manifests.read()?;
        let (ours, others): (Vec<_>, Vec<_>) = documents
            .into_iter()
            .partition(|document| is_ours(&document.object) || !has_kind(&document.object));
        for other in &others {
            eprintln!(
                "Note: {}: {} is of a kind that only a cluster can check",
                other.origin,
                title(&other.object)
            );
        }
        match check(&ours) {
            Ok(warnings) => {
                for warning in warnings {
                    eprintln!("Warning: {warning}");
                }
                for document in &ours {
                    writeln!(out, "{} valid", title(&document.object))?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => {
                report(&error.into());
                Ok(ExitCode::FAILURE)
            }
        }
    }
}

fn has_kind(object: &serde_json::Value) -> bool {
    object["kind"].is_string() && object["apiVersion"].is_string()
}
