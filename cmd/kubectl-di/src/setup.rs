//! What `install` and `upgrade` share: all objects of the orchestrator are applied, and it is waited for.

use std::{io::Write, time::Duration};

use anyhow::Result;
use clap::{ArgAction, Args, ValueEnum};
use di_client::{
    Apply, Cluster, Error, Flavour, apply, await_answers, await_definition, await_rollout, objects,
};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    args::limit,
    output::{self, ObjectFormat, presentable, report, title},
};

/// What follows the telling of something that a dry run cannot check.
const HOMELESS: &str = " (dry run: its namespace does not exist yet)";

/// Flags of both.
#[derive(Debug, Args)]
pub struct Setup {
    /// Image that the orchestrator runs, instead of the one that belongs to this plugin
    #[arg(long)]
    pub image: Option<String>,
    /// client only shows what would be applied; server does all but keep it
    #[arg(long, value_enum, default_value_t = DryRun::None)]
    pub dry_run: DryRun,
    /// Show the objects instead of telling that they were applied
    #[arg(short, long)]
    output: Option<ObjectFormat>,
    /// Wait until the orchestrator runs and its webhooks answer
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true
    )]
    wait: bool,
    /// How long to wait in all; 0 means without limit
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = limit)]
    timeout: Duration,
    /// Also overwrite what others have changed since
    #[arg(long)]
    force_conflicts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    None,
    Client,
    Server,
}

impl DryRun {
    /// What follows the telling of something that was not really done.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

impl Setup {
    /// Shows what would be applied, for which no cluster is needed.
    pub fn show(&self, flavour: Flavour, image: &str, out: &mut impl Write) -> Result<()> {
        for (at, object) in objects(flavour, image)?.into_iter().enumerate() {
            self.print(object, at, self.dry_run.suffix(), out)?;
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
        let deadline = Instant::now().checked_add(self.timeout);
        let objects = objects(flavour, image)?;
        if self.dry_run == DryRun::None && !self.foresee(cluster, &objects).await? {
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
                Some(applied) => self.print(applied, at, self.dry_run.suffix(), out)?,
                None => self.print(object.clone(), at, HOMELESS, out)?,
            }
            if self.dry_run == DryRun::None && object["kind"] == "CustomResourceDefinition" {
                await_definition(cluster, object, deadline).await?;
            }
        }
        out.flush()?;
        if self.wait && self.dry_run == DryRun::None {
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
                    refused(error, object);
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
    async fn apply(&self, cluster: &Cluster, object: &Value) -> Result<Option<Value>, Error> {
        let how = Apply {
            dry_run: self.dry_run == DryRun::Server,
            force: self.force_conflicts,
        };
        match apply(cluster, object, how).await {
            Err(error) if how.dry_run && error.is_not_found() => Ok(None),
            applied => applied.map(Some),
        }
    }

    /// No partial effects without saying so.
    fn so_far(&self, at: usize, all: usize) -> String {
        if at == 0 || self.dry_run != DryRun::None {
            "nothing was changed".to_owned()
        } else {
            format!(
                "only the {at} of {all} objects above were applied; the same command goes on from there"
            )
        }
    }

    /// Whether what is printed is for programs.
    pub fn is_data(&self) -> bool {
        self.output.is_some()
    }

    fn print(&self, object: Value, at: usize, suffix: &str, out: &mut impl Write) -> Result<()> {
        match self.output {
            None => writeln!(out, "{} serverside-applied{suffix}", title(&object))?,
            Some(ObjectFormat::Name) => writeln!(out, "{}", title(&object))?,
            Some(ObjectFormat::Json) => output::json(out, &presentable(object))?,
            Some(ObjectFormat::Yaml) => {
                if at > 0 {
                    writeln!(out, "---")?;
                }
                output::yaml(out, &presentable(object))?;
            }
        }
        Ok(())
    }
}

/// Whether the server understood, and said no.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Server(status) if matches!(status.code, 403 | 409))
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
