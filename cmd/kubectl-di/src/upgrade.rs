use std::{io::Write, process::ExitCode};

use anyhow::{Result, anyhow, bail, ensure};
use clap::Args;
use di_client::{DryRun, IMAGE, Installed, Orchestrator, VERSION, installed};

use crate::{
    globals::Globals,
    install::version,
    setup::{Setup, in_system_namespace},
};

/// Bring the orchestrator in the cluster to this plugin's version.
///
/// Jobs go on meanwhile: pods of the orchestrator are exchanged one by one. What was installed stays what it is, all of it or only the
/// admission checks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # To this plugin's version
  kubectl di upgrade

  # From a registry of your own
  kubectl di upgrade --image registry.example.com/di-orchestrator:v0.1.0

  # See what the server would make of it
  kubectl di upgrade --dry-run=server")]
pub struct Upgrade {
    /// Also to an older version than the one that is there
    #[arg(long)]
    allow_downgrade: bool,
    #[command(flatten)]
    setup: Setup,
}

impl Upgrade {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        in_system_namespace(globals)?;
        let cluster = globals.connect().await?;
        let found = match installed(&cluster).await? {
            Orchestrator::Installed(found) => found,
            Orchestrator::NotInstalled => {
                bail!(
                    "DI Orchestrator is not installed in this cluster; to install it: kubectl di install"
                )
            }
            Orchestrator::Hidden => {
                bail!(
                    "you may not look at the orchestrator: its upgrade takes an administrator's rights"
                )
            }
        };
        self.check_version(&found)?;
        let image = match &self.setup.image {
            Some(image) => image,
            None => found.next_image(IMAGE).map_err(|runs| {
                anyhow!("the orchestrator runs {runs}, which is not where {IMAGE} comes from; say what to run: --image")
            })?,
        };
        let flavour = found.flavour;
        if self.setup.dry_run.get() == DryRun::Client {
            self.setup.show(flavour, image, out)?;
            return Ok(ExitCode::SUCCESS);
        }
        if !self.setup.carry_out(&cluster, flavour, image, out).await? {
            return Ok(ExitCode::FAILURE);
        }
        if self.setup.dry_run.is_real() && !self.setup.is_data() {
            let from = version(&found);
            writeln!(out, "DI Orchestrator upgraded from {from} to {VERSION}")?;
        }
        Ok(ExitCode::SUCCESS)
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
