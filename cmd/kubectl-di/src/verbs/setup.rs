//! The common part of `install` and `upgrade`: applies all objects and waits for the rollout.

use std::{io::Write, time::Duration};

use anyhow::{Result, bail};
use clap::Args;
use di_api::names;
use di_client::{
    AppliedObject, ApplyOptions, Cluster, Deadline, DryRun, Error, GangScheduler, GangSetting,
    Installed, apply_object, delete_leftover, gang_permissions, wait_for_crd, wait_for_rollout,
    wait_for_webhooks,
};
use serde_json::Value;

use crate::{
    flags::{dry_run::DryRunFlag, globals::Globals, parsers::parse_timeout, wait::WaitByDefault},
    output::{
        kind_and_name,
        printer::{OutputFlags, Printer},
        quoted_name, report_error,
    },
};

/// The operation that is printed for every object.
const APPLIED: &str = "serverside-applied";

/// Rejects any namespace but the one in the manifests.
pub fn check_system_namespace(globals: &Globals) -> Result<()> {
    let system = names::SYSTEM_NAMESPACE;
    match globals.connect_options().namespace {
        Some(other) if other != system => {
            bail!("the orchestrator must be in namespace {system}, not in {other}; omit -n")
        }
        _ => Ok(()),
    }
}

/// The common flags.
#[derive(Debug, Args)]
pub struct Setup {
    /// Image of the orchestrator, instead of the image of this plugin's version
    #[arg(long)]
    pub image: Option<String>,
    /// Also install the permissions of the orchestrator to use Kueue. An upgrade keeps them without
    /// this flag
    #[arg(long)]
    pub kueue: bool,
    /// Scheduler that starts the gangs of jobs: volcano, coscheduling, coscheduling:NAME, yunikorn,
    /// kai, kubernetes or none. Also installs the permissions to use it, or removes unused ones. An
    /// upgrade keeps the scheduler without this flag
    #[arg(long, value_name = "SCHEDULER")]
    pub gang_scheduler: Option<GangSetting>,
    #[command(flatten)]
    pub dry_run: DryRunFlag,
    #[command(flatten)]
    output: OutputFlags,
    #[command(flatten)]
    waiting: WaitByDefault,
    /// The length of time to wait before giving up. Zero means no limit
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_timeout)]
    timeout: Duration,
    /// If true, server-side apply will force the changes against conflicts
    #[arg(long)]
    force_conflicts: bool,
}

impl Setup {
    /// Rejects a change of an orchestrator that Helm manages: the next `helm upgrade` would revert
    /// it.
    pub fn check_manager(&self, installed: &Installed) -> Result<()> {
        let Some(release) = &installed.helm_release else {
            return Ok(());
        };
        let scheduler = self.gang_scheduler.as_ref().map(ToString::to_string);
        bail!(
            "Helm manages the orchestrator; to upgrade it: {}",
            release.upgrade_command(self.kueue, scheduler.as_deref(), self.image.as_deref())
        )
    }

    /// Prints the objects that would be applied; needs no cluster.
    pub fn print_manifests(&self, objects: Vec<Value>, out: &mut impl Write) -> Result<()> {
        let mut printer = Printer::new(&self.output, self.dry_run);
        for object in objects {
            printer.print_change(out, object, APPLIED)?;
        }
        Ok(())
    }

    /// Applies objects in this order. Waits for the rollout if the Deployment is one of them and
    /// --wait is not false.
    ///
    /// Returns false if the server rejected an object; the error and the partial result are
    /// printed then.
    ///
    /// # Errors
    /// The wait failed or timed out, or the preflight check could not reach the server.
    pub async fn apply_all(
        &self,
        cluster: &Cluster,
        objects: &[Value],
        out: &mut impl Write,
    ) -> Result<bool> {
        let deadline = Deadline::after(Some(self.timeout));
        if !self.apply_objects(cluster, objects, deadline, out).await? {
            return Ok(false);
        }
        let has_pods = objects.iter().any(|object| object["kind"] == "Deployment");
        if has_pods && self.waiting.is_wanted() && self.dry_run.is_real() {
            eprintln!("Waiting for the rollout of the orchestrator...");
            wait_for_rollout(cluster, deadline).await?;
            eprintln!("Waiting for its webhooks to respond...");
            wait_for_webhooks(cluster, "default", deadline).await?;
        }
        Ok(true)
    }

    /// Deletes the permissions to use groups if the new gang scheduler has no groups. Returns false
    /// if the server rejected a deletion; the error is printed then.
    pub async fn delete_unused_permissions(
        &self,
        cluster: &Cluster,
        out: &mut impl Write,
    ) -> Result<bool> {
        let Some(GangSetting(scheduler)) = &self.gang_scheduler else {
            return Ok(true);
        };
        let scheduler = scheduler.as_ref();
        if scheduler.and_then(GangScheduler::group_kind).is_some() {
            return Ok(true);
        }
        for target in gang_permissions()? {
            match delete_leftover(cluster, &target, !self.dry_run.is_real()).await {
                Ok(uid) if uid.is_some() && !self.is_data() => {
                    let (title, suffix) = (quoted_name(&target), self.dry_run.message_suffix());
                    writeln!(out, "{title} deleted{suffix}")?;
                }
                // It was not installed, or the output is meant for programs.
                Ok(_) => {}
                Err(error) => {
                    report_error(&error.into());
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The flags of optional parts, each after a space.
    pub fn part_flags(&self) -> String {
        let kueue = if self.kueue { " --kueue" } else { "" };
        match &self.gang_scheduler {
            Some(scheduler) => format!("{kueue} --gang-scheduler={scheduler}"),
            None => kueue.to_owned(),
        }
    }

    /// Applies objects in this order. Returns false if the server rejected one.
    async fn apply_objects(
        &self,
        cluster: &Cluster,
        objects: &[Value],
        deadline: Deadline,
        out: &mut impl Write,
    ) -> Result<bool> {
        let mut printer = Printer::new(&self.output, self.dry_run);
        if self.dry_run.is_real() && !self.preflight(cluster, objects).await? {
            eprintln!("nothing was changed");
            return Ok(false);
        }
        for (at, object) in objects.iter().enumerate() {
            let applied = match self.apply_object(cluster, object).await {
                Ok(applied) => applied,
                Err(error) => {
                    report_rejected(error, object);
                    eprintln!("{}", self.partial_result(at, objects.len()));
                    return Ok(false);
                }
            };
            match applied {
                Some(applied) => {
                    printer.print_change(out, applied.object, APPLIED)?;
                    self.print_taken_over_fields(object, &applied.taken_over);
                }
                None => printer.print_change(
                    out,
                    object.clone(),
                    "not checked, as its namespace does not exist yet",
                )?,
            }
            if self.dry_run.is_real() && object["kind"] == "CustomResourceDefinition" {
                let served = wait_for_crd(cluster, object, deadline).await;
                if let Err(error) = served {
                    report_error(&error.into());
                    eprintln!("{}", self.partial_result(at + 1, objects.len()));
                    return Ok(false);
                }
            }
        }
        out.flush()?;
        Ok(true)
    }

    /// Dry-runs all objects, so that a rejection is found before anything is applied.
    async fn preflight(&self, cluster: &Cluster, objects: &[Value]) -> Result<bool> {
        let mut accepted = true;
        for object in objects {
            let options = ApplyOptions {
                dry_run: true,
                force: self.force_conflicts,
            };
            match apply_object(cluster, object, options).await {
                Err(error) if is_rejected(&error) => {
                    let forbidden = is_forbidden(&error);
                    report_rejected(error, object);
                    // The other objects would be forbidden too, so report only the first.
                    if forbidden {
                        return Ok(false);
                    }
                    accepted = false;
                }
                // Other errors can be caused by the dry run itself: the namespace does not exist,
                // or the webhook does not support dry runs.
                Err(Error::Server(_)) | Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(accepted)
    }

    /// Applies one object; none if a server dry run cannot check it without its namespace.
    async fn apply_object(
        &self,
        cluster: &Cluster,
        object: &Value,
    ) -> Result<Option<AppliedObject>, Error> {
        let options = ApplyOptions {
            dry_run: self.dry_run.get() == DryRun::Server,
            force: self.force_conflicts,
        };
        match apply_object(cluster, object, options).await {
            Err(error) if options.dry_run && error.is_not_found() => Ok(None),
            applied => applied.map(Some),
        }
    }

    /// Prints the fields that were owned by `kubectl apply` before.
    fn print_taken_over_fields(&self, object: &Value, fields: &[String]) {
        if !fields.is_empty() {
            let (title, fields) = (kind_and_name(object), fields.join(", "));
            let suffix = self.dry_run.message_suffix();
            eprintln!("{title}: taken over from kubectl apply: {fields}{suffix}");
        }
    }

    /// Describes a partial result.
    fn partial_result(&self, applied: usize, total: usize) -> String {
        if applied == 0 || !self.dry_run.is_real() {
            "nothing was changed".to_owned()
        } else {
            format!(
                "only the {applied} of {total} objects above were applied; run the same command to continue"
            )
        }
    }

    /// Whether the output is meant for programs.
    pub fn is_data(&self) -> bool {
        self.output.is_data()
    }
}

/// Whether the server rejected the request: forbidden or conflict.
fn is_rejected(error: &Error) -> bool {
    is_forbidden(error) || matches!(error, Error::Server(status) if status.code == 409)
}

fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Server(status) if status.code == 403)
}

/// Prints the error of an object, with a hint for conflicts.
fn report_rejected(error: Error, object: &Value) {
    let conflict = matches!(&error, Error::Server(status) if status.code == 409);
    let error = error.with_action(format_args!("applying {}", kind_and_name(object)));
    report_error(&error.into());
    if conflict {
        eprintln!("another field manager changed these fields; --force-conflicts overwrites them");
    }
}
