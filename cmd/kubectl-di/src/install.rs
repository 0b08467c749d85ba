use std::{io::Write, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use di_client::{DryRun, Flavour, IMAGE, Installed, Orchestrator, VERSION, installed};

use crate::{globals::Globals, setup::Setup};

/// Install the orchestrator in the cluster.
///
/// Its definitions come first, then its namespace, its rights and the rest, all by server-side apply. Done once its pods are ready and the
/// API server reaches its webhooks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Install it, from a registry that the cluster reaches
  kubectl di install --image registry.example.com/di-orchestrator:v0.1.0

  # See what would be applied, without a cluster
  kubectl di install --dry-run=client -o yaml

  # Only the admission checks, where another operator runs the jobs
  kubectl di install --webhook-only")]
pub struct Install {
    /// Only the admission checks
    #[arg(long)]
    webhook_only: bool,
    #[command(flatten)]
    setup: Setup,
}

impl Install {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let flavour = if self.webhook_only {
            Flavour::WebhookOnly
        } else {
            Flavour::Whole
        };
        let image = self.setup.image.as_deref().unwrap_or(IMAGE);
        if self.setup.dry_run.get() == DryRun::Client {
            self.setup.show(flavour, image, out)?;
            return Ok(ExitCode::SUCCESS);
        }
        let cluster = globals.connect().await?;
        if let Orchestrator::Installed(installed) = installed(&cluster).await? {
            bail!(
                "DI Orchestrator {} is already installed in this cluster; to bring in {VERSION}: kubectl di upgrade",
                version(&installed)
            );
        }
        if !self.setup.carry_out(&cluster, flavour, image, out).await? {
            return Ok(ExitCode::FAILURE);
        }
        if self.setup.dry_run.is_real() && !self.setup.is_data() {
            writeln!(out, "DI Orchestrator {VERSION} installed")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The version of an orchestrator, for people.
pub fn version(installed: &Installed) -> String {
    match &installed.version {
        Some(version) => version.to_string(),
        None => "of unknown version".to_owned(),
    }
}
