use std::{
    io::{self, BufRead, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use di_client::{Cascade, Check, Cluster, Deadline, Deletion, Target, await_deletion, prepare};

use crate::{
    args::limit,
    dry_run::DryRunFlag,
    globals::Globals,
    manifests::{EITHER, Manifests},
    output::report,
    selection::Selection,
    waiting::WaitUnlessTold,
};

/// Delete jobs by name or label, or all that manifests name.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Delete a job, and wait until it is gone
  kubectl di delete cartpole

  # Delete what a manifest created, if it is still there
  kubectl di delete -f cartpole.yaml --ignore-not-found

  # Delete all jobs of the namespace, and be asked before
  kubectl di delete --all -i

  # Wait for the job's pods, too
  kubectl di delete cartpole --cascade=foreground --timeout=5m")]
#[allow(clippy::struct_excessive_bools)] // flags
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
    #[command(flatten)]
    waiting: WaitUnlessTold,
    /// How long to wait for each; 0 means without limit
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = limit)]
    timeout: Duration,
    /// What becomes of the pods and services of a job
    #[arg(long, value_enum, default_value_t = CascadeArg::Background)]
    cascade: CascadeArg,
    /// Seconds that objects are given to end; -1 leaves it to the server
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    grace_period: i64,
    /// Give them no time to end
    #[arg(long)]
    force: bool,
    /// The same as --grace-period=1
    #[arg(long)]
    now: bool,
    /// Ask before anything is deleted
    #[arg(short, long)]
    interactive: bool,
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
            (true, true) => bail!("{EITHER}"),
            (false, false) => {
                bail!("must specify one of names of jobs, -l, --field-selector, --all and -f")
            }
            (true, false) => Some(self.manifests.read()?),
            (false, true) => None,
        };
        let how = Deletion {
            cascade: self.cascade.into(),
            grace: self.grace()?,
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
        if self.interactive && !targets.is_empty() && !self.ask(&targets, out)? {
            writeln!(out, "deletion is cancelled")?;
            return Ok(ExitCode::SUCCESS);
        }
        if how.grace == Some(0) {
            eprintln!(
                "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. The resource may \
                 continue to run on the cluster indefinitely."
            );
        }
        let mut code = ExitCode::SUCCESS;
        let mut going = Vec::new();
        for target in &targets {
            match di_client::delete(&cluster, target, how, self.dry_run.get()).await {
                Ok(uid) => {
                    self.print(out, target, how)?;
                    going.push((target, uid));
                }
                Err(error) if error.is_not_found() && self.ignore_not_found => {}
                Err(error) if self.selection.has_gone(&error) => {}
                Err(error) => {
                    report(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        out.flush()?;
        if self.waiting.is_wanted()
            && self.dry_run.is_real()
            && !self.wait_for(&cluster, going).await
        {
            code = ExitCode::FAILURE;
        }
        Ok(code)
    }

    async fn selected(&self, cluster: &Cluster) -> Result<Vec<Target>> {
        let chosen = self.selection.jobs(cluster).await?;
        if chosen.is_empty() {
            self.selection.tell_nothing(cluster);
        }
        let targets = chosen.into_iter();
        let targets = targets.map(|one| Target::job(&one.cluster, one.name));
        Ok(targets.collect())
    }

    /// Seconds, as kubectl reads its three flags.
    fn grace(&self) -> Result<Option<u32>> {
        Ok(match (self.now, self.force, self.grace_period) {
            (true, _, 0..) => bail!("--now and --grace-period cannot be specified together"),
            (true, true, _) | (_, true, 1..) => {
                bail!("--force and --grace-period greater than 0 cannot be specified together")
            }
            (_, true, _) => Some(0),
            // Only --force gives them no time at all.
            (true, ..) | (_, _, 0) => Some(1),
            (_, _, seconds) => u32::try_from(seconds).ok(),
        })
    }

    fn print(&self, out: &mut impl Write, target: &Target, how: Deletion) -> Result<()> {
        let kind = kind(target);
        let done = match how.grace {
            Some(0) => "force deleted",
            _ => "deleted",
        };
        match self.output {
            Some(NameFormat::Name) => writeln!(out, "{kind}/{}", target.name)?,
            None => writeln!(
                out,
                "{kind} {:?} {done}{}{}",
                target.name,
                self.place(target),
                self.dry_run.suffix()
            )?,
        }
        Ok(())
    }

    /// As ` from team namespace`, where there may be several.
    fn place(&self, target: &Target) -> String {
        match &target.namespace {
            Some(namespace) if self.selection.is_of_all_namespaces() => {
                format!(" from {namespace} namespace")
            }
            _ => String::new(),
        }
    }

    /// Whether that is wanted, asked as kubectl asks.
    fn ask(&self, targets: &[Target], out: &mut impl Write) -> Result<bool> {
        let count = targets.len();
        writeln!(
            out,
            "You are about to delete the following {count} resource(s):"
        )?;
        for target in targets {
            writeln!(
                out,
                "{}/{}{}",
                kind(target),
                target.name,
                self.place(target)
            )?;
        }
        write!(out, "Do you want to continue? (y/N): ")?;
        out.flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(answer.trim().eq_ignore_ascii_case("y"))
    }

    /// Whether all of them have gone.
    async fn wait_for(&self, cluster: &Cluster, going: Vec<(&Target, Option<String>)>) -> bool {
        let mut all = true;
        for (target, uid) in going {
            let deadline = Deadline::after(Some(self.timeout));
            match await_deletion(cluster, target, uid.as_deref(), deadline).await {
                // Who may delete it need not be one who may see it go.
                Err(error) if !error.is_forbidden() => {
                    report(&error.into());
                    all = false;
                }
                _ => {}
            }
        }
        all
    }
}

fn kind(target: &Target) -> String {
    let kind = target.api.kind.to_lowercase();
    match target.api.group.as_str() {
        "" => kind,
        group => format!("{kind}.{group}"),
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
