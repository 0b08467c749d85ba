use std::{io::Write, process::ExitCode, time::Duration};

use anyhow::{Result, bail};
use clap::{ArgAction, Args, ValueEnum};
use di_client::{Cascade, Check, Cluster, Error, Target, await_deletion, prepare};

use crate::{
    args::limit,
    dry_run::DryRunFlag,
    globals::Globals,
    manifests::Manifests,
    output::report,
    selection::{Selection, nothing},
};

/// Delete jobs by name or label, or all that manifests name.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Delete a job, and wait until it is gone
  kubectl di delete cartpole

  # Delete what a manifest created, if it is still there
  kubectl di delete -f cartpole.yaml --ignore-not-found

  # Wait for the job's pods, too
  kubectl di delete cartpole --cascade=foreground --timeout=5m")]
pub struct Delete {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    manifests: Manifests,
    #[command(flatten)]
    dry_run: DryRunFlag,
    /// What is not there counts as deleted
    #[arg(long)]
    ignore_not_found: bool,
    /// Wait until the objects are gone
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true
    )]
    wait: bool,
    /// How long to wait for each; 0 means without limit
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = limit)]
    timeout: Duration,
    /// What becomes of the pods and services of a job
    #[arg(long, value_enum, default_value_t = CascadeArg::Background)]
    cascade: CascadeArg,
    /// Show only kind and name
    #[arg(short, long)]
    output: Option<NameFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CascadeArg {
    /// They are deleted after it
    Background,
    /// It goes only when they are gone
    Foreground,
    /// They stay
    Orphan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NameFormat {
    Name,
}

impl Delete {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let documents = match (self.manifests.are_named(), self.selection.is_given()) {
            (true, true) => bail!("-f cannot be combined with names, -l or --all"),
            (false, false) => bail!("must specify one of names of jobs, -l, --all and -f"),
            (true, false) => Some(self.manifests.read()?),
            (false, true) => None,
        };
        let cluster = globals.connect().await?;
        let targets: Vec<Target> = match documents {
            Some(documents) => {
                let namespace = cluster.namespace();
                let ready = prepare(Some(&cluster), namespace, documents, Check::Identity).await?;
                ready.into_iter().map(Target::from).collect()
            }
            None => self.selected(&cluster).await?,
        };
        let mut code = ExitCode::SUCCESS;
        let mut going = Vec::new();
        for target in &targets {
            match self.delete(&cluster, target).await {
                Ok(uid) => {
                    self.print(out, target)?;
                    going.push((target, uid));
                }
                Err(error) if error.is_not_found() && self.ignore_not_found => {}
                Err(error) => {
                    report(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        out.flush()?;
        if self.wait && self.dry_run.is_real() {
            self.wait_for(&cluster, going).await?;
        }
        Ok(code)
    }

    async fn selected(&self, cluster: &Cluster) -> Result<Vec<Target>> {
        let names = self.selection.names(cluster).await?;
        if names.is_empty() {
            eprintln!("{}", nothing(cluster));
        }
        let targets = names.into_iter().map(|name| Target::job(cluster, name));
        Ok(targets.collect())
    }

    async fn delete(&self, cluster: &Cluster, target: &Target) -> Result<Option<String>, Error> {
        di_client::delete(cluster, target, self.cascade.into(), self.dry_run.get()).await
    }

    fn print(&self, out: &mut impl Write, target: &Target) -> Result<()> {
        let mut kind = target.api.kind.to_lowercase();
        if !target.api.group.is_empty() {
            kind = format!("{kind}.{}", target.api.group);
        }
        match self.output {
            Some(NameFormat::Name) => writeln!(out, "{kind}/{}", target.name)?,
            None => writeln!(
                out,
                "{kind} {:?} deleted{}",
                target.name,
                self.dry_run.suffix()
            )?,
        }
        Ok(())
    }

    async fn wait_for(
        &self,
        cluster: &Cluster,
        going: Vec<(&Target, Option<String>)>,
    ) -> Result<()> {
        let timeout = Some(self.timeout).filter(|timeout| *timeout != Duration::MAX);
        for (target, uid) in going {
            await_deletion(cluster, target, uid.as_deref(), timeout).await?;
        }
        Ok(())
    }
}

impl From<CascadeArg> for Cascade {
    fn from(cascade: CascadeArg) -> Self {
        match cascade {
            CascadeArg::Background => Self::Background,
            CascadeArg::Foreground => Self::Foreground,
            CascadeArg::Orphan => Self::Orphan,
        }
    }
}
