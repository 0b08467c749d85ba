mod server;

use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{check_documents, is_own_kind};

use crate::{
    flags::{globals::Globals, manifests::Manifests},
    output::{kind_and_name, report_error},
};

/// Check manifests of DIJobs and AggregatorConfigs.
///
/// Prints every fault of every document. Without a cluster, only the rules of jobs and the most
/// frequent mistakes in pods are checked; --server checks the rest. Manifests of the kind NerveXJob,
/// and DIJobs of version v2alpha1, are converted first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Check a manifest
  kubectl di validate -f cartpole.yaml

  # Check all manifests in a directory and its subdirectories
  kubectl di validate -f jobs -R

  # Check whether the cluster would accept the manifest now
  kubectl di validate -f cartpole.yaml --server

  # Check a manifest from standard input
  cat cartpole.yaml | kubectl di validate -f -")]
#[command(mut_arg("filename", |arg| arg.required(true)))]
pub struct Validate {
    #[command(flatten)]
    manifests: Manifests,
    /// Submit the objects to the cluster with your permissions as well, without persisting them.
    /// With a value, to the cluster at this address
    #[arg(short, long, num_args = 0..=1, default_missing_value = "")]
    // The flag of all verbs, whose value is optional here.
    server: Option<String>,
}

impl Validate {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let documents = self.manifests.read_documents()?;
        if self.server.is_some() {
            let stdin_in_use = self.manifests.use_stdin();
            let cluster = globals.connect_with_stdin(stdin_in_use).await?;
            return server::submit(&cluster, documents, out).await;
        }
        let (ours, others): (Vec<_>, Vec<_>) = documents
            .into_iter()
            .partition(|document| is_own_kind(&document.object) || !has_kind(&document.object));
        for other in &others {
            eprintln!(
                "Note: {}: {} is not checked: only a cluster can check this kind",
                other.origin,
                kind_and_name(&other.object)
            );
        }
        match check_documents(&ours) {
            Ok(warnings) => {
                for warning in warnings {
                    eprintln!("Warning: {warning}");
                }
                for document in &ours {
                    writeln!(out, "{} valid", kind_and_name(&document.object))?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => {
                report_error(&error.into());
                Ok(ExitCode::FAILURE)
            }
        }
    }
}

fn has_kind(object: &serde_json::Value) -> bool {
    object["kind"].is_string() && object["apiVersion"].is_string()
}
