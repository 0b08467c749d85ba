use std::{io::Write, process::ExitCode};

use anyhow::{Result, anyhow, bail, ensure};
use clap::Args;
use di_client::{
    Cluster, DryRun, IMAGE, InstallOptions, InstallVariant, Installed, Orchestrator, VERSION,
    find_orchestrator, has_kueue_permissions, install_objects,
};

use crate::flags::globals::Globals;

use super::{
    install::version_text,
    setup::{Setup, check_system_namespace},
};

/// Upgrade the orchestrator in the cluster to the version of this plugin.
///
/// Jobs keep running during the upgrade: the pods of the orchestrator are replaced one by one. If
/// only the admission webhooks are installed, only they are upgraded.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Upgrade to the version of this plugin
  kubectl di upgrade

  # Use an image from another registry
  kubectl di upgrade --image registry.example.com/di-orchestrator:v0.1.0

  # Also let Volcano start the gangs of jobs
  kubectl di upgrade --gang-scheduler=volcano

  # Check the upgrade with a server dry run
  kubectl di upgrade --dry-run=server")]
pub struct Upgrade {
    /// Allow a version that is older than the installed one
    #[arg(long)]
    allow_downgrade: bool,
    #[command(flatten)]
    setup: Setup,
}

impl Upgrade {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        check_system_namespace(globals)?;
        let cluster = globals.connect().await?;
        let found = match find_orchestrator(&cluster).await? {
            Orchestrator::Installed(found) => found,
            Orchestrator::NotInstalled => {
                bail!(
                    "DI Orchestrator is not installed in this cluster; to install it: kubectl di install"
                )
            }
            Orchestrator::Forbidden => {
                bail!(
                    "you may not read the orchestrator's Deployment: an upgrade requires administrator permissions"
                )
            }
        };
        self.setup.check_manager(&found)?;
        self.check_version(&found)?;
        let image = match &self.setup.image {
            Some(image) => image,
            None => found.upgrade_image(IMAGE).map_err(|runs| {
                anyhow!("the orchestrator runs {runs}, which is not from the registry of {IMAGE}; set the image with --image")
            })?,
        };
        let options = self.install_options(&cluster, &found).await?;
        let objects = install_objects(&options, image)?;
        if self.setup.dry_run.get() == DryRun::Client {
            self.setup.print_manifests(objects, out)?;
            return Ok(ExitCode::SUCCESS);
        }
        let is_done = self.setup.apply_all(&cluster, &objects, out).await?
            && self.setup.delete_unused_permissions(&cluster, out).await?;
        if !is_done {
            return Ok(ExitCode::FAILURE);
        }
        if self.setup.dry_run.is_real() && !self.setup.is_data() {
            let from = version_text(&found);
            writeln!(out, "DI Orchestrator upgraded from {from} to {VERSION}")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The installed parts, with those that a flag adds.
    async fn install_options(
        &self,
        cluster: &Cluster,
        found: &Installed,
    ) -> Result<InstallOptions> {
        let flags = self.setup.part_flags();
        ensure!(
            flags.is_empty() || found.variant == InstallVariant::Full,
            "only the admission webhooks are installed, and they use neither Kueue nor a gang scheduler; omit{flags}"
        );
        let gang_scheduler = match (&self.setup.gang_scheduler, &found.gang_scheduler) {
            (Some(flag), _) => flag.0.clone(),
            (None, Some(installed)) => Some(installed.parse().map_err(|_| {
                anyhow!("the orchestrator has the unknown gang scheduler {installed}; set another one with --gang-scheduler")
            })?),
            (None, None) => None,
        };
        Ok(InstallOptions {
            variant: found.variant,
            kueue: self.setup.kueue || has_kueue_permissions(cluster).await?,
            gang_scheduler,
        })
    }

    fn check_version(&self, found: &Installed) -> Result<()> {
        let ours = VERSION.parse()?;
        let newer = found.version.as_ref().filter(|theirs| **theirs > ours);
        if let Some(newer) = newer {
            ensure!(
                self.allow_downgrade,
                "the cluster runs DI Orchestrator {newer}, which is newer than this plugin's {VERSION}; upgrade the plugin, or pass --allow-downgrade"
            );
        }
        Ok(())
    }
}
