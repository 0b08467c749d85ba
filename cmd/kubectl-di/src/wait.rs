use std::{io::Write, process::ExitCode, time::Duration};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use di_client::{Cluster, Deadline, Error, For, Job, Target, await_deletion, job, until};

use crate::{
    args::duration,
    dry_run::DryRunFlag,
    globals::Globals,
    manifests::{EITHER, Manifests},
    output::report,
    printed::{Output, Printer},
    selection::{Chosen, Selection},
    waiting::condition_on,
};

/// Wait until jobs are as wanted.
///
/// Ends early, with an error, when a job has ended in a way that what is waited for can no longer come.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Wait until a job has succeeded; fails as soon as it has failed
  kubectl di wait cartpole --for=phase=Succeeded --timeout=1h

  # Wait until the coordinators of some jobs run
  kubectl di wait -l tier=gold --for=condition=Running

  # Wait until all replicas are ready
  kubectl di wait cartpole --for=condition=ReplicasReady --timeout=5m

  # Wait until a field has a value
  kubectl di wait cartpole --for=jsonpath={.status.restarts}=1

  # Wait until a job is gone
  kubectl di wait cartpole --for=delete")]
pub struct Wait {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    manifests: Manifests,
    /// create, delete, phase=PHASE, condition=TYPE[=STATUS] or jsonpath={PATH}[=VALUE]
    #[arg(long = "for", value_name = "WHAT", value_parser = For::parse)]
    wanted: For,
    /// How long to wait for all of them; 0 looks once, less than 0 means a week
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = timeout, allow_hyphen_values = true)]
    timeout: Duration,
    #[command(flatten)]
    output: Output,
}

/// As kubectl's: no limit is a week.
fn timeout(text: &str) -> Result<Duration, String> {
    const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
    match text.strip_prefix('-') {
        Some(text) => duration(text).map(|_| WEEK),
        None => duration(text),
    }
}

impl Wait {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let deadline = Deadline::after(Some(self.timeout));
        let chosen = match (self.manifests.are_named(), self.selection.is_given()) {
            (true, true) => bail!("{EITHER}"),
            (true, false) => self.manifests.jobs(&cluster).await?,
            (false, _) => self.selection.jobs(&cluster).await?,
        };
        if chosen.is_empty() && self.wanted != For::Delete {
            bail!("no matching resources found");
        }
        let mut code = ExitCode::SUCCESS;
        let mut printer = Printer::new(&self.output, DryRunFlag::off());
        for Chosen { cluster, name } in &chosen {
            match self.wait_for(cluster, name, deadline).await {
                Ok(Some(job)) => {
                    printer.print(out, job.object, "condition met")?;
                    out.flush()?;
                }
                Ok(None) => {}
                Err(error) => {
                    report(&error);
                    code = ExitCode::FAILURE;
                }
            }
        }
        Ok(code)
    }

    /// The job as it was last seen; nothing where one that is to be gone was never there.
    async fn wait_for(
        &self,
        cluster: &Cluster,
        name: &str,
        deadline: Deadline,
    ) -> Result<Option<Job>> {
        let found = match self.wanted {
            For::Delete => self.gone(cluster, name, deadline).await,
            For::Create => self.there(cluster, name, deadline).await.map(Some),
            _ => {
                let look = |job: &Job| self.wanted.look(job);
                let met = until(cluster, name, deadline, look, condition_on).await;
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

    async fn gone(
        &self,
        cluster: &Cluster,
        name: &str,
        deadline: Deadline,
    ) -> Result<Option<Job>, Error> {
        let seen = match job(cluster, name).await {
            Ok(job) => job,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let uid = seen.metadata.uid.as_deref();
        let target = Target::job(cluster, name);
        await_deletion(cluster, &target, uid, deadline).await?;
        Ok(Some(seen))
    }

    /// What is not there yet cannot be watched by its name alone with the rights to get it, so it is asked for again and again, as kubectl does.
    async fn there(&self, cluster: &Cluster, name: &str, deadline: Deadline) -> Result<Job, Error> {
        const PAUSE: Duration = Duration::from_millis(200);
        loop {
            match job(cluster, name).await {
                Err(error) if error.is_not_found() => {}
                other => return other,
            }
            if deadline.comes_within(PAUSE) {
                return Err(Error::Timeout(format!("the condition on dijobs/{name}")));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
