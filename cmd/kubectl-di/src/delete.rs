use std::{
    io::{self, BufRead, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use di_client::{
    Cascade, CheckLevel, Cluster, Deadline, DeleteOptions, ObjectRef, prepare_objects,
    wait_for_deletion,
};

use crate::{
    args::parse_timeout,
    dry_run::DryRunFlag,
    globals::Globals,
    manifests::{Manifests, SOURCE_CONFLICT},
    output::report_error,
    selection::Selection,
    wait_flags::WaitByDefault,
};

/// Delete jobs by names or selectors, or the objects in manifests.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Delete a job, and wait until it is deleted
  kubectl di delete cartpole

  # Delete the objects in a manifest, if they exist
  kubectl di delete -f cartpole.yaml --ignore-not-found

  # Delete all jobs in the namespace after confirmation
  kubectl di delete --all -i

  # Also wait until the pods of the job are deleted
  kubectl di delete cartpole --cascade=foreground --timeout=5m")]
#[allow(clippy::struct_excessive_bools)] // flags
pub struct Delete {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    manifests: Manifests,
    #[command(flatten)]
    dry_run: DryRunFlag,
    /// Treat "resource not found" as a successful delete
    #[arg(long)]
    ignore_not_found: bool,
    #[command(flatten)]
    waiting: WaitByDefault,
    /// The length of time to wait before giving up on a delete, such as 30s. Zero means no limit
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_timeout)]
    timeout: Duration,
    /// Selects the deletion cascading strategy for the dependents, such as pods and services of a
    /// job
    #[arg(long, value_enum, default_value_t = CascadeArg::Background)]
    cascade: CascadeArg,
    /// Period of time in seconds given to the resource to terminate gracefully. Ignored if
    /// negative. Set to 1 for immediate shutdown. Can only be set to 0 when --force is true (force
    /// deletion)
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    grace_period: i64,
    /// If true, immediately remove resources from API and bypass graceful deletion. Note that
    /// immediate deletion of some resources may result in inconsistency or data loss
    #[arg(long)]
    force: bool,
    /// If true, resources are signaled for immediate shutdown (same as --grace-period=1)
    #[arg(long)]
    now: bool,
    /// If true, delete resource only when user confirms
    #[arg(short, long)]
    interactive: bool,
    /// Output mode. Use "-o name" for shorter output (resource/name)
    #[arg(short, long)]
    output: Option<NameFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CascadeArg {
    /// Delete the object first, then its dependents
    Background,
    /// Delete the dependents first, then the object
    Foreground,
    /// Keep the dependents
    Orphan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NameFormat {
    Name,
}

impl Delete {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let documents = match (self.manifests.are_given(), self.selection.is_given()) {
            (true, true) => bail!("{SOURCE_CONFLICT}"),
            (false, false) => {
                bail!("must specify job names, -l, --field-selector, --all or -f")
            }
            (true, false) => Some(self.manifests.read_documents()?),
            (false, true) => None,
        };
        let how = DeleteOptions {
            cascade: self.cascade.into(),
            grace: self.grace_seconds()?,
        };
        let cluster = globals.connect().await?;
        let targets: Vec<ObjectRef> = match documents {
            Some(documents) => {
                let namespace = cluster.namespace();
                let ready =
                    prepare_objects(Some(&cluster), namespace, documents, CheckLevel::Identity)
                        .await?;
                ready.into_iter().map(ObjectRef::from).collect()
            }
            None => self.selected_targets(&cluster).await?,
        };
        if self.interactive && !targets.is_empty() && !self.confirm_deletion(&targets, out)? {
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
        let mut deleted = Vec::new();
        for target in &targets {
            match di_client::delete_object(&cluster, target, how, self.dry_run.get()).await {
                Ok(uid) => {
                    self.print_deleted(out, target, how)?;
                    deleted.push((target, uid));
                }
                Err(error) if error.is_not_found() && self.ignore_not_found => {}
                Err(error) if self.selection.is_deleted_since_query(&error) => {}
                Err(error) => {
                    report_error(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        out.flush()?;
        if self.waiting.is_wanted()
            && self.dry_run.is_real()
            && !self.wait_for_deletions(&cluster, deleted).await
        {
            code = ExitCode::FAILURE;
        }
        Ok(code)
    }

    async fn selected_targets(&self, cluster: &Cluster) -> Result<Vec<ObjectRef>> {
        let selected = self.selection.selected_jobs(cluster).await?;
        if selected.is_empty() {
            self.selection.print_no_jobs(cluster);
        }
        let targets = selected.into_iter();
        let targets = targets.map(|one| ObjectRef::for_job(&one.cluster, one.name));
        Ok(targets.collect())
    }

    /// The grace period in seconds, from the same three flags as in kubectl.
    fn grace_seconds(&self) -> Result<Option<u32>> {
        Ok(match (self.now, self.force, self.grace_period) {
            (true, _, 0..) => bail!("--now and --grace-period cannot be specified together"),
            (true, true, _) | (_, true, 1..) => {
                bail!("--force and --grace-period greater than 0 cannot be specified together")
            }
            (_, true, _) => Some(0),
            // As in kubectl, only --force deletes without a grace period.
            (true, ..) | (_, _, 0) => Some(1),
            (_, _, seconds) => u32::try_from(seconds).ok(),
        })
    }

    fn print_deleted(
        &self,
        out: &mut impl Write,
        target: &ObjectRef,
        how: DeleteOptions,
    ) -> Result<()> {
        let kind = qualified_kind(target);
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
                self.namespace_suffix(target),
                self.dry_run.message_suffix()
            )?,
        }
        Ok(())
    }

    /// A suffix such as ` from team namespace`, with --all-namespaces.
    fn namespace_suffix(&self, target: &ObjectRef) -> String {
        match &target.namespace {
            Some(namespace) if self.selection.is_all_namespaces() => {
                format!(" from {namespace} namespace")
            }
            _ => String::new(),
        }
    }

    /// Asks for confirmation with the same text as kubectl.
    fn confirm_deletion(&self, targets: &[ObjectRef], out: &mut impl Write) -> Result<bool> {
        let count = targets.len();
        writeln!(
            out,
            "You are about to delete the following {count} resource(s):"
        )?;
        for target in targets {
            writeln!(
                out,
                "{}/{}{}",
                qualified_kind(target),
                target.name,
                self.namespace_suffix(target)
            )?;
        }
        write!(out, "Do you want to continue? (y/N): ")?;
        out.flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(answer.trim().eq_ignore_ascii_case("y"))
    }

    /// Waits for the deletions; returns whether all are complete.
    async fn wait_for_deletions(
        &self,
        cluster: &Cluster,
        pending: Vec<(&ObjectRef, Option<String>)>,
    ) -> bool {
        let mut all_deleted = true;
        for (target, uid) in pending {
            let deadline = Deadline::after(Some(self.timeout));
            match wait_for_deletion(cluster, target, uid.as_deref(), deadline).await {
                // Permission to delete does not include permission to watch.
                Err(error) if !error.is_forbidden() => {
                    report_error(&error.into());
                    all_deleted = false;
                }
                _ => {}
            }
        }
        all_deleted
    }
}

fn qualified_kind(target: &ObjectRef) -> String {
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
