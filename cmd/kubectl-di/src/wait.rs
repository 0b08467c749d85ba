use std::{io::Write, process::ExitCode, time::Duration};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use di_client::{
    Cluster, Deadline, Error, Job, ObjectRef, WaitCondition, get_job, wait_for_deletion,
    wait_for_job,
};

use crate::{
    args::parse_duration,
    dry_run::DryRunFlag,
    globals::Globals,
    manifests::{Manifests, SOURCE_CONFLICT},
    output::report_error,
    printer::{OutputFlags, Printer},
    selection::{SelectedJob, Selection},
    wait_flags::unmet_condition,
};

/// Wait for a specific condition on one or many jobs.
///
/// Fails early if a job has ended and can no longer meet the condition.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Wait until a job has succeeded; fails as soon as it has failed
  kubectl di wait cartpole --for=phase=Succeeded --timeout=1h

  # Wait until the coordinators of some jobs are running
  kubectl di wait -l tier=gold --for=condition=Running

  # Wait until all replicas are ready
  kubectl di wait cartpole --for=condition=ReplicasReady --timeout=5m

  # Wait until a field has a value
  kubectl di wait cartpole --for=jsonpath={.status.restarts}=1

  # Wait until a job is deleted
  kubectl di wait cartpole --for=delete")]
pub struct Wait {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    manifests: Manifests,
    /// The condition to wait on: create, delete, phase=PHASE, condition=TYPE[=STATUS] or
    /// jsonpath={PATH}[=VALUE]. The default STATUS is true
    #[arg(long = "for", value_name = "CONDITION", value_parser = WaitCondition::parse)]
    condition: WaitCondition,
    /// The length of time to wait before giving up. Zero means check once and don't wait, negative
    /// means wait for a week
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_wait_timeout, allow_hyphen_values = true)]
    timeout: Duration,
    #[command(flatten)]
    output: OutputFlags,
}

/// Parses the timeout; as in kubectl, a negative value means a week.
fn parse_wait_timeout(text: &str) -> Result<Duration, String> {
    const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
    match text.strip_prefix('-') {
        Some(text) => parse_duration(text).map(|_| WEEK),
        None => parse_duration(text),
    }
}

impl Wait {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let deadline = Deadline::after(Some(self.timeout));
        let selected = match (self.manifests.are_given(), self.selection.is_given()) {
            (true, true) => bail!("{SOURCE_CONFLICT}"),
            (true, false) => self.manifests.read_jobs(&cluster).await?,
            (false, _) => self.selection.selected_jobs(&cluster).await?,
        };
        if selected.is_empty() && self.condition != WaitCondition::Delete {
            bail!("no matching resources found");
        }
        let mut code = ExitCode::SUCCESS;
        let mut printer = Printer::new(&self.output, DryRunFlag::disabled());
        for SelectedJob { cluster, name } in &selected {
            match self.wait_for_job(cluster, name, deadline).await {
                Ok(Some(job)) => {
                    printer.print_change(out, job.object, "condition met")?;
                    out.flush()?;
                }
                Ok(None) => {}
                Err(error) => {
                    report_error(&error);
                    code = ExitCode::FAILURE;
                }
            }
        }
        Ok(code)
    }

    /// Waits for one job and returns its last state; none if there is nothing to delete.
    async fn wait_for_job(
        &self,
        cluster: &Cluster,
        name: &str,
        deadline: Deadline,
    ) -> Result<Option<Job>> {
        let found = match self.condition {
            WaitCondition::Delete => self.wait_for_deletion(cluster, name, deadline).await,
            WaitCondition::Create => self
                .wait_for_creation(cluster, name, deadline)
                .await
                .map(Some),
            _ => {
                let check = |job: &Job| self.condition.check_job(job);
                let met = wait_for_job(cluster, name, deadline, check, unmet_condition).await;
                met.map(Some)
            }
        };
        found.map_err(|error| match error {
            Error::Timeout(_) if self.timeout.is_zero() => {
                anyhow!("condition not met for dijobs/{name}")
            }
            error => error.into(),
        })
    }

    async fn wait_for_deletion(
        &self,
        cluster: &Cluster,
        name: &str,
        deadline: Deadline,
    ) -> Result<Option<Job>, Error> {
        let existing = match get_job(cluster, name).await {
            Ok(job) => job,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let uid = existing.metadata.uid.as_deref();
        let target = ObjectRef::for_job(cluster, name);
        wait_for_deletion(cluster, &target, uid, deadline).await?;
        Ok(Some(existing))
    }

    /// Polls until the job exists, as kubectl does: a watch needs more permissions than `get`.
    async fn wait_for_creation(
        &self,
        cluster: &Cluster,
        name: &str,
        deadline: Deadline,
    ) -> Result<Job, Error> {
        const POLL_INTERVAL: Duration = Duration::from_millis(200);
        loop {
            match get_job(cluster, name).await {
                Err(error) if error.is_not_found() => {}
                other => return other,
            }
            if deadline.ends_within(POLL_INTERVAL) {
                return Err(Error::Timeout(format!("the condition on dijobs/{name}")));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
