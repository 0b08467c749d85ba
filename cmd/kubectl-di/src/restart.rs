use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{Error, has_restarted, until};

use crate::{
    dry_run::DryRunFlag,
    globals::Globals,
    output::report,
    printed::{Output, Printer},
    selection::{Chosen, Selection},
    waiting::{Bar, Waiting, condition_on},
};

/// Replace the coordinators of jobs by new ones; collectors and learners stay.
///
/// The orchestrator deletes the pod of the coordinator and starts another. It does not count against backoffLimit, and however the old one ends
/// is not how the job ends. The rights to see and change the job and to see its pods are all that it takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Start the coordinator of a job anew, and wait until it runs
  kubectl di restart cartpole --wait --timeout=2m

  # Start those of all jobs of a team anew
  kubectl di restart -l team=rl

  # See whether that could be done
  kubectl di restart cartpole --dry-run=server

  # Replace collectors instead
  kubectl di replicas restart cartpole --collectors")]
pub struct Restart {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    dry_run: DryRunFlag,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    waiting: Waiting,
}

impl Restart {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let chosen = self.selection.jobs(&cluster).await?;
        if chosen.is_empty() {
            self.selection.tell_nothing(&cluster);
        }
        let mut code = ExitCode::SUCCESS;
        let mut printer = Printer::new(&self.output, self.dry_run);
        let mut restarted = Vec::new();
        for one in chosen {
            match di_client::restart(&one.cluster, &one.name, self.dry_run.get()).await {
                Ok((job, old)) => {
                    printer.print(out, job.object, "restarted")?;
                    restarted.push((one, old));
                }
                // As where jobs are suspended: one that has ended has no coordinator to replace.
                Err(Error::Ended(_)) if !self.selection.is_by_name() => {}
                Err(error) if self.selection.has_gone(&error) => {}
                Err(error) => {
                    report(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        out.flush()?;
        if !self.waiting.is_wanted() || !self.dry_run.is_real() {
            return Ok(code);
        }
        let deadline = self.waiting.deadline();
        for (Chosen { cluster, name }, old) in restarted {
            let bar = Bar::spinner(format!("waiting for the coordinator of {name} to run"));
            let look = |job: &di_client::Job| has_restarted(job, &old);
            let met = until(&cluster, &name, deadline, look, condition_on).await;
            drop(bar);
            if let Err(error) = met {
                report(&error.into());
                code = ExitCode::FAILURE;
            }
        }
        Ok(code)
    }
}
