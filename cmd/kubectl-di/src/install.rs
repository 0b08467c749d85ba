use std::{io::Write, process::ExitCode};

use anyhow::{Result, bail, ensure};
use clap::Args;
use di_client::{DryRun, Flavour, IMAGE, Installed, Orchestrator, VERSION, installed};

use crate::{
    globals::Globals,
    setup::{Setup, in_system_namespace},
};

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
        in_system_namespace(globals)?;
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
            let already = format!(
                "DI Orchestrator {} is already installed in this cluster",
                version(&installed)
            );
            let is_ours = version(&installed) == VERSION;
            if is_ours && installed.flavour == flavour && self.setup.image.is_none() {
                bail!("{already}: there is nothing to do");
            }
            ensure!(
                installed.flavour == flavour,
                "{already}, as {}; to change that, first: kubectl di uninstall",
                match installed.flavour {
                    Flavour::Whole => "a whole",
                    Flavour::WebhookOnly => "its admission checks alone",
                }
            );
            let what = match &self.setup.image {
                Some(image) if is_ours => image,
                _ => VERSION,
            };
            bail!("{already}; to bring in {what}: kubectl di upgrade");
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
