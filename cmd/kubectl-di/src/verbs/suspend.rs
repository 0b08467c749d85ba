use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{Job, describe_wait, resumed_state, suspended_state, wait_for_job};

use crate::{
    flags::{
        dry_run::DryRunFlag,
        globals::Globals,
        selection::{SelectedJob, Selection},
        wait::WaitFlags,
    },
    output::{
        printer::{OutputFlags, Printer},
        progress_bar::ProgressBar,
        report_error,
    },
};

/// Suspend jobs: delete their pods; keep their plan and declared replicas.
///
/// To keep the pods, use pause instead.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Suspend a job, and wait until its pods are deleted
  kubectl di suspend cartpole --wait

  # Suspend all jobs in the namespace
  kubectl di suspend --all")]
pub struct Suspend {
    #[command(flatten)]
    args: SuspendArgs,
}

/// Resume suspended jobs: create new coordinators and replicas.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Resume a job, and wait until it is running
  kubectl di resume cartpole --wait

  # Resume all jobs of a team
  kubectl di resume -l team=rl")]
pub struct Resume {
    #[command(flatten)]
    args: SuspendArgs,
}

#[derive(Debug, Args)]
struct SuspendArgs {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    dry_run: DryRunFlag,
    #[command(flatten)]
    output: OutputFlags,
    #[command(flatten)]
    waiting: WaitFlags,
}

impl Suspend {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        self.args.run(true, globals, out).await
    }
}

impl Resume {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        self.args.run(false, globals, out).await
    }
}

impl SuspendArgs {
    async fn run(self, suspend: bool, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let selected = self.selection.selected_jobs(&cluster).await?;
        if selected.is_empty() {
            self.selection.print_no_jobs(&cluster);
        }
        let done = if suspend { "suspended" } else { "resumed" };
        let already = if suspend {
            "already suspended"
        } else {
            "not suspended"
        };
        let mut code = ExitCode::SUCCESS;
        let mut printer = Printer::new(&self.output, self.dry_run);
        let mut changed = Vec::new();
        for one in selected {
            match di_client::set_suspended(&one.cluster, &one.name, suspend, self.dry_run.get())
                .await
            {
                Ok((job, has_changed)) => {
                    let done = if has_changed { done } else { already };
                    printer.print_change(out, job.object, done)?;
                    changed.push(one);
                }
                // A job that has ended has no pods; report it only if the user named it.
                Err(di_client::Error::JobEnded(_)) if !self.selection.is_by_name() => {}
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
            && !self.wait_for(suspend, &changed).await
        {
            code = ExitCode::FAILURE;
        }
        Ok(code)
    }

    async fn wait_for(&self, suspend: bool, jobs: &[SelectedJob]) -> bool {
        let deadline = self.waiting.deadline();
        let mut all_met = true;
        for SelectedJob { cluster, name } in jobs {
            let (message, awaited) = if suspend {
                let message = format!("waiting for the pods of {name} to be deleted");
                (message, "the deletion of the pods")
            } else {
                (format!("waiting for {name} to run"), "the start")
            };
            let bar = ProgressBar::spinner(message);
            let check = |job: &Job| {
                if suspend {
                    suspended_state(job)
                } else {
                    resumed_state(job)
                }
            };
            let waited = wait_for_job(cluster, name, deadline, check, describe_wait(awaited)).await;
            drop(bar);
            if let Err(error) = waited {
                report_error(&error.into());
                all_met = false;
            }
        }
        all_met
    }
}
