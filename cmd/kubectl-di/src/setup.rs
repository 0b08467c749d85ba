//! What `install` and `upgrade` share: all objects of the orchestrator are applied, and it is waited for.

use std::{io::Write, time::Duration};

use anyhow::{Result, bail};
use clap::Args;
use di_api::names;
use di_client::{
    Applied, Apply, Cluster, Deadline, DryRun, Error, Flavour, apply, await_answers,
    await_definition, await_rollout, objects,
};
use serde_json::Value;

use crate::{
    args::limit,
    dry_run::DryRunFlag,
    globals::Globals,
    output::{report, title},
    printed::{Output, Printer},
    waiting::WaitUnlessTold,
};

/// What is told of every object.
const APPLIED: &str = "serverside-applied";

/// Refuses any other namespace than the one that the manifests name.
pub fn in_system_namespace(globals: &Globals) -> Result<()> {
    let system = names::SYSTEM_NAMESPACE;
    match globals.options().namespace {
        Some(other) if other != system => {
            bail!("the orchestrator lives in namespace {system}, never in {other}; leave -n out")
        }
        _ => Ok(()),
    }
}

/// Flags of both.
#[derive(Debug, Args)]
pub struct Setup {
    /// Image that the orchestrator runs, instead of the one that belongs to this plugin
    #[arg(long)]
    pub image: Option<String>,
    #[command(flatten)]
    pub dry_run: DryRunFlag,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    waiting: WaitUnlessTold,
    /// How long to wait in all; 0 means without limit
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = limit)]
    timeout: Duration,
    /// Also overwrite what others have changed since
    #[arg(long)]
    force_conflicts: bool,
}

impl Setup {
    /// Shows what would be applied, for which no cluster is needed.
    pub fn show(&self, flavour: Flavour, image: &str, out: &mut impl Write) -> Result<()> {
        let mut printer = Printer::new(&self.output, self.dry_run);
        for object in objects(flavour, image)? {
            printer.print(out, object, APPLIED)?;
        }
        Ok(())
    }

    /// Applies everything, and waits as long as is wanted.
    ///
    /// # Errors
    /// What the server refuses is told, with what was done before that; so the answer is whether all was applied.
    pub async fn carry_out(
        &self,
        cluster: &Cluster,
        flavour: Flavour,
        image: &str,
        out: &mut impl Write,
    ) -> Result<bool> {
        let deadline = Deadline::after(Some(self.timeout));
        let mut printer = Printer::new(&self.output, self.dry_run);
        let objects = objects(flavour, image)?;
        if self.dry_run.is_real() && !self.foresee(cluster, &objects).await? {
            eprintln!("nothing was changed");
            return Ok(false);
        }
        for (at, object) in objects.iter().enumerate() {
            let applied = match self.apply(cluster, object).await {
                Ok(applied) => applied,
                Err(error) => {
                    refused(error, object);
                    eprintln!("{}", self.so_far(at, objects.len()));
                    return Ok(false);
                }
            };
            match applied {
                Some(applied) => {
                    printer.print(out, applied.object, APPLIED)?;
                    self.tell_taken_over(object, &applied.taken_over);
                }
                None => printer.print(
                    out,
                    object.clone(),
                    "not checked, as its namespace does not exist yet",
                )?,
            }
            if self.dry_run.is_real() && object["kind"] == "CustomResourceDefinition" {
                let served = await_definition(cluster, object, deadline).await;
                if let Err(error) = served {
                    report(&error.into());
                    eprintln!("{}", self.so_far(at + 1, objects.len()));
                    return Ok(false);
                }
            }
        }
        out.flush()?;
        if self.waiting.is_wanted() && self.dry_run.is_real() {
            eprintln!("Waiting until the orchestrator is rolled out...");
            await_rollout(cluster, deadline).await?;
            eprintln!("Waiting until its webhooks answer...");
            await_answers(cluster, "default", deadline).await?;
        }
        Ok(true)
    }

    /// Whether the server would take everything: better asked before the first is applied than found out at the last.
    async fn foresee(&self, cluster: &Cluster, objects: &[Value]) -> Result<bool> {
        let mut fine = true;
        for object in objects {
            let how = Apply {
                dry_run: true,
                force: self.force_conflicts,
            };
            match apply(cluster, object, how).await {
                Err(error) if is_refusal(&error) => {
                    let forbidden = is_forbidden(&error);
                    refused(error, object);
                    // Who may not apply one may not apply the others: that need not be said of each.
                    if forbidden {
                        return Ok(false);
                    }
                    fine = false;
                }
                // Of the rest, a dry run may be the cause: a namespace is not there, a webhook knows none.
                Err(Error::Server(_)) | Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(fine)
    }

    /// Applies one object; nothing, where a dry run keeps no namespace for it, so that the server cannot check it.
    async fn apply(&self, cluster: &Cluster, object: &Value) -> Result<Option<Applied>, Error> {
        let how = Apply {
            dry_run: self.dry_run.get() == DryRun::Server,
            force: self.force_conflicts,
        };
        match apply(cluster, object, how).await {
            Err(error) if how.dry_run && error.is_not_found() => Ok(None),
            applied => applied.map(Some),
        }
    }

    /// Tells what is no longer as kubectl applied it.
    fn tell_taken_over(&self, object: &Value, fields: &[String]) {
        if !fields.is_empty() {
            let (title, fields) = (title(object), fields.join(", "));
            let suffix = self.dry_run.suffix();
            eprintln!("{title}: taken over from kubectl apply: {fields}{suffix}");
        }
    }

    /// No partial effects without saying so.
    fn so_far(&self, at: usize, all: usize) -> String {
        if at == 0 || !self.dry_run.is_real() {
            "nothing was changed".to_owned()
        } else {
            format!(
                "only the {at} of {all} objects above were applied; the same command goes on from there"
            )
        }
    }

    /// Whether what is printed is for programs.
    pub fn is_data(&self) -> bool {
        self.output.is_data()
    }
}

/// Whether the server understood, and said no.
fn is_refusal(error: &Error) -> bool {
    is_forbidden(error) || matches!(error, Error::Server(status) if status.code == 409)
}

fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Server(status) if status.code == 403)
}

/// Tells what the server said of an object; of a conflict, what helps.
fn refused(error: Error, object: &Value) {
    let conflict = matches!(&error, Error::Server(status) if status.code == 409);
    let error = error.when(format_args!("applying {}", title(object)));
    report(&error.into());
    if conflict {
        eprintln!("others have changed that since; --force-conflicts overwrites it");
    }
}
