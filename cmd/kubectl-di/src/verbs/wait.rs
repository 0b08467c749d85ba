use std::{io::Write, process::ExitCode, time::Duration};

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use di_api::{FailureAction, Reason};
use di_client::{
    Cluster, Deadline, Error, Job, WaitCondition, describe_state, describe_wait, get_job,
    wait_for_job,
};

use crate::{
    flags::{
        dry_run::DryRunFlag,
        globals::Globals,
        parsers::parse_duration,
        selection::{SelectedJob, Selection},
    },
    output::{
        failures::tail_lines,
        printer::{OutputFlags, Printer},
        report_error,
    },
};

/// Wait for a specific condition on one or many jobs.
///
/// Fails early if a job has ended and can no longer meet the condition. For the creation, the
/// deletion or any field of a job, use kubectl wait.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Wait until a job has succeeded; fails as soon as it has failed
  kubectl di wait cartpole --for=phase=Succeeded --timeout=1h

  # Wait until the coordinators of some jobs are running
  kubectl di wait -l tier=gold --for=condition=Running

  # Wait until Kueue has admitted a job
  kubectl di wait cartpole --for=admitted --timeout=1h

  # Wait until all replicas are ready
  kubectl di wait cartpole --for=condition=ReplicasReady --timeout=5m")]
pub struct Wait {
    #[command(flatten)]
    selection: Selection,
    /// The condition to wait on: phase=PHASE, condition=TYPE[=STATUS] or admitted. The default STATUS
    /// is true. Jobs in no queue of Kueue count as admitted
    #[arg(long = "for", value_name = "CONDITION", value_parser = WaitCondition::parse)]
    condition: WaitCondition,
    /// The length of time to wait before giving up. Zero means check once and don't wait
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    output: OutputFlags,
}

impl Wait {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let deadline = Deadline::after(Some(self.timeout));
        let selected = self.selection.selected_jobs(&cluster).await?;
        ensure!(!selected.is_empty(), "no matching resources found");
        let mut code = ExitCode::SUCCESS;
        let mut printer = Printer::new(&self.output, DryRunFlag::disabled());
        let awaited = self.condition.describe();
        for SelectedJob { cluster, name } in &selected {
            let check = |job: &Job| self.condition.check_job(job);
            let describe = |job: &Job| {
                if self.timeout.is_zero() {
                    describe_state(job)
                } else {
                    describe_wait(&awaited)(job)
                }
            };
            match wait_for_job(cluster, name, deadline, check, describe).await {
                Ok(job) => {
                    printer.print_change(out, job.object, "condition met")?;
                    out.flush()?;
                }
                Err(error) => {
                    report_error(&match error {
                        Error::Timeout(job) if self.timeout.is_zero() => {
                            anyhow!("condition not met for {job}")
                        }
                        error => error.into(),
                    });
                    code = ExitCode::FAILURE;
                    print_last_failure(cluster, name).await;
                }
            }
        }
        Ok(code)
    }
}

/// Prints the last log lines to stderr if the failure of a pod has failed the job.
async fn print_last_failure(cluster: &Cluster, name: &str) {
    let Ok(job) = get_job(cluster, name).await else {
        return;
    };
    let mut failures = job.status.failures.iter();
    let reason = job.status.reason.as_deref();
    let failure = if reason == Some(Reason::CoordinatorFailed.as_str()) {
        failures.next()
    } else if reason == Some(Reason::FailureRule.as_str()) {
        failures.find(|failure| failure.action == FailureAction::FailJob)
    } else {
        None
    };
    let Some(failure) = failure.filter(|failure| failure.tail.is_some()) else {
        return;
    };
    eprintln!("The last lines of the log of pod {}:", failure.pod);
    for line in tail_lines(failure, usize::MAX) {
        eprintln!("{line}");
    }
}
