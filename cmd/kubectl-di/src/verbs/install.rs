use std::{io::Write, process::ExitCode};

use anyhow::{Result, bail, ensure};
use clap::Args;
use di_client::{
    Cluster, DryRun, IMAGE, InstallOptions, InstallVariant, Installed, Orchestrator, VERSION,
    find_orchestrator, gang_objects, install_objects, kueue_objects,
};

use crate::{
    flags::globals::Globals,
    verbs::setup::{Setup, check_system_namespace},
};

/// Install the orchestrator in the cluster.
///
/// Applies the custom resource definitions, the namespace, the RBAC rules and the other objects by
/// server-side apply. Waits until the pods are ready and the API server reaches the webhooks.
///
/// If the orchestrator is installed already, --kueue and --gang-scheduler change only these parts.
/// The plugin must then have the version of the orchestrator, and --image must be omitted; else use
/// kubectl di upgrade with the same flags.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Install the orchestrator, with the released image of this plugin's version
  kubectl di install

  # Use an image from another registry
  kubectl di install --image registry.example.com/di-orchestrator:v0.1.0

  # Print the objects that would be applied, without a cluster
  kubectl di install --dry-run=client -o yaml

  # Allow the orchestrator to queue jobs with Kueue, also if it is installed already
  kubectl di install --kueue

  # Start the gangs of jobs by Volcano, also if the orchestrator is installed already
  kubectl di install --gang-scheduler=volcano

  # Install only the admission webhooks, if another operator runs the jobs
  kubectl di install --webhook-only")]
pub struct Install {
    /// Install only the admission webhooks
    #[arg(long, conflicts_with_all = ["kueue", "gang_scheduler"])]
    webhook_only: bool,
    #[command(flatten)]
    setup: Setup,
}

impl Install {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        check_system_namespace(globals)?;
        let flavour = if self.webhook_only {
            InstallVariant::WebhookOnly
        } else {
            InstallVariant::Full
        };
        let options = InstallOptions {
            variant: flavour,
            kueue: self.setup.kueue,
            gang_scheduler: self.setup.gang_scheduler.clone().and_then(|flag| flag.0),
        };
        let image = self.setup.image.as_deref().unwrap_or(IMAGE);
        let objects = install_objects(&options, image)?;
        if self.setup.dry_run.get() == DryRun::Client {
            self.setup.print_manifests(objects, out)?;
            return Ok(ExitCode::SUCCESS);
        }
        let cluster = globals.connect().await?;
        if let Orchestrator::Installed(installed) = find_orchestrator(&cluster).await? {
            self.setup.check_manager(&installed)?;
            let already = format!(
                "DI Orchestrator {} is already installed in this cluster",
                version_text(&installed)
            );
            let is_ours = version_text(&installed) == VERSION;
            if is_ours && installed.variant == flavour && self.setup.image.is_none() {
                if self.setup.kueue || self.setup.gang_scheduler.is_some() {
                    return self.add_parts(&cluster, &installed, out).await;
                }
                bail!("{already}: there is nothing to do");
            }
            ensure!(
                installed.variant == flavour,
                "{already}, {}; to change that, run kubectl di uninstall first",
                match installed.variant {
                    InstallVariant::Full => "with the reconciler",
                    InstallVariant::WebhookOnly => "with the admission webhooks only",
                }
            );
            let target = match &self.setup.image {
                Some(image) if is_ours => image,
                _ => VERSION,
            };
            let flags = self.setup.part_flags();
            bail!("{already}; to upgrade to {target}: kubectl di upgrade{flags}");
        }
        if !self.setup.apply_all(&cluster, &objects, out).await? {
            return Ok(ExitCode::FAILURE);
        }
        if self.setup.dry_run.is_real() && !self.setup.is_data() {
            writeln!(out, "DI Orchestrator {VERSION} installed")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Adds the permissions to use Kueue, and the gang scheduler, to an installed orchestrator.
    async fn add_parts(
        &self,
        cluster: &Cluster,
        installed: &Installed,
        out: &mut impl Write,
    ) -> Result<ExitCode> {
        let (mut objects, mut results) = (Vec::new(), Vec::new());
        if self.setup.kueue {
            objects.extend(kueue_objects()?);
            results.push("may use Kueue".to_owned());
        }
        if let Some(scheduler) = &self.setup.gang_scheduler {
            let image = installed.images.first().map_or(IMAGE, String::as_str);
            objects.extend(gang_objects(scheduler.0.as_ref(), image)?);
            results.push(format!("has the gang scheduler {scheduler}"));
        }
        let is_done = self.setup.apply_all(cluster, &objects, out).await?
            && self.setup.delete_unused_permissions(cluster, out).await?;
        if !is_done {
            return Ok(ExitCode::FAILURE);
        }
        if self.setup.dry_run.is_real() && !self.setup.is_data() {
            for result in results {
                writeln!(out, "DI Orchestrator {VERSION} {result}")?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The version of an orchestrator as text.
pub fn version_text(installed: &Installed) -> String {
    match &installed.version {
        Some(version) => version.to_string(),
        None => "of unknown version".to_owned(),
    }
}
