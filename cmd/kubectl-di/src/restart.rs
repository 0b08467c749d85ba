use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{has_restarted, until};

use crate::{
    dry_run::DryRunFlag,
    globals::Globals,
    output::{ObjectFormat, report},
    printed::Printer,
    selection::job_name,
    waiting::{Bar, Waiting, condition_on},
};

/// Replace the coordinators of jobs by new ones; collectors and learners stay.
///
/// The orchestrator deletes the pod of the coordinator and starts another. It does not count against backoffLimit, and however the old one ends
/// is not how the job ends. The right to change the job is all that it takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Start the coordinator of a job anew, and wait until it runs
  kubectl di restart cartpole --wait --timeout=2m

  # See whether that could be done
  kubectl di restart cartpole --dry-run=server

  # Replace collectors instead
  kubectl di replicas restart cartpole --collectors")]
pub struct Restart {
    /// Names of jobs
    #[arg(value_name = "NAME", required = true, value_parser = job_name)]
    names: Vec<String>,
    #[command(flatten)]
    dry_run: DryRunFlag,
    /// Show the jobs instead of telling that they are restarted
    #[arg(short, long)]
    output: Option<ObjectFormat>,
    #[command(flatten)]
    waiting: Waiting,
}

impl Restart {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let mut code = ExitCode::SUCCESS;
        let mut printer = Printer::new(self.output, self.dry_run);
        let mut restarted = Vec::new();
        for name in &self.names {
            match di_client::restart(&cluster, name, self.dry_run.get()).await {
                Ok((job, old)) => {
                    printer.print(out, job.object, "restarted")?;
                    restarted.push((name, old));
                }
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
        for (name, old) in restarted {
            let bar = Bar::spinner(format!("waiting for the coordinator of {name} to run"));
            let look = |job: &di_client::Job| has_restarted(job, &old);
            let met = until(&cluster, name, deadline, look, condition_on).await;
            drop(bar);
            if let Err(error) = met {
                report(&error.into());
                code = ExitCode::FAILURE;
            }
        }
        Ok(code)
    }
}
