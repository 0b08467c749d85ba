use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{Error, describe_wait, restarted_state, wait_for_job};

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

/// Restart the coordinators of jobs; collectors and learners keep running.
///
/// The orchestrator deletes the pod of the coordinator and creates a new one. The restart does not
/// count against backoffLimit, and the exit code of the old coordinator does not end the job.
/// Requires permission to get and patch the job and to get its pods.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Restart the coordinator of a job, and wait until it is running
  kubectl di restart cartpole --wait --timeout=2m

  # Restart the coordinators of all jobs of a team
  kubectl di restart -l team=rl

  # Check whether the restart is possible
  kubectl di restart cartpole --dry-run=server

  # Restart collectors instead
  kubectl di replicas restart cartpole --collectors")]
pub struct Restart {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    dry_run: DryRunFlag,
    #[command(flatten)]
    output: OutputFlags,
    #[command(flatten)]
    waiting: WaitFlags,
}

impl Restart {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let selected = self.selection.selected_jobs(&cluster).await?;
        if selected.is_empty() {
            self.selection.print_no_jobs(&cluster);
        }
        let mut code = ExitCode::SUCCESS;
        let mut printer = Printer::new(&self.output, self.dry_run);
        let mut restarted = Vec::new();
        for one in selected {
            // The orchestrator, not the plugin, deletes the pod. See docs/decisions/0014.
            match di_client::restart_coordinator(&one.cluster, &one.name, self.dry_run.get()).await
            {
                Ok((job, old)) => {
                    printer.print_change(out, job.object, "restarted")?;
                    restarted.push((one, old));
                }
                // A job that has ended has no coordinator; report it only if the user named it.
                Err(Error::JobEnded(_)) if !self.selection.is_by_name() => {}
                Err(error) if self.selection.is_deleted_since_query(&error) => {}
                Err(error) => {
                    report_error(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        out.flush()?;
        if !self.waiting.is_wanted() || !self.dry_run.is_real() {
            return Ok(code);
        }
        let deadline = self.waiting.deadline();
        for (SelectedJob { cluster, name }, old) in restarted {
            let bar = ProgressBar::spinner(format!("waiting for the coordinator of {name} to run"));
            let check = |job: &di_client::Job| restarted_state(job, &old);
            let waited = wait_for_job(
                &cluster,
                &name,
                deadline,
                check,
                describe_wait("a new coordinator"),
            )
            .await;
            drop(bar);
            if let Err(error) = waited {
                report_error(&error.into());
                code = ExitCode::FAILURE;
            }
        }
        Ok(code)
    }
}
