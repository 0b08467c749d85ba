mod outline;

use std::{io::Write, process::ExitCode};

use anyhow::{Result, bail, ensure};
use clap::Args;
use di_client::{
    Check, Cluster, Deadline, DryRun, Outlook, Ready, has_started, has_succeeded, prepare, until,
};
use serde_json::Value;

use crate::{
    dry_run::DryRunFlag,
    globals::Globals,
    logs,
    manifests::Manifests,
    output::{self, report},
    printed::{Output, Printer},
    resources::Resources,
    waiting::{Bar, Waiting, condition_on},
};

/// Create DIJobs and AggregatorConfigs from manifests, or a DIJob from flags; other objects beside them, too.
///
/// All documents are checked before any is sent: every fault is told, and nothing is created while there is one. Manifests of the kind
/// NerveXJob are converted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Create a job, and wait until it runs
  kubectl di create -f cartpole.yaml --wait --timeout=5m

  # Create a job, and see what its coordinator says until it has ended; fails when the job does
  kubectl di create -f cartpole.yaml --follow

  # Create a job without a manifest: a coordinator, four collectors, and a learner of two GPUs
  kubectl di create cartpole --image=registry/train:v1 --collectors=4 --learners=1 --gpus=2 -- python -m train

  # Write a manifest to start from
  kubectl di create cartpole --image=registry/train:v1 --collectors=4 --dry-run=client -o yaml

  # Create all that is in a directory and those in it
  kubectl di create -f jobs -R

  # Create what another program writes, and show what the server made of it
  cat cartpole.yaml | kubectl di create -f - -o yaml")]
pub struct Create {
    #[command(flatten)]
    outline: outline::OutlineFlags,
    #[command(flatten, next_help_heading = "Flags instead of a manifest")]
    resources: Resources,
    #[command(flatten)]
    manifests: Manifests,
    #[command(flatten)]
    dry_run: DryRunFlag,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    waiting: Waiting,
    /// Print what the job's coordinator says until the job has ended, and fail when it has failed; to stop that leaves the job as it is
    #[arg(long, conflicts_with = "timeout")]
    follow: bool,
}

impl Create {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let resources = self.resources.get();
        ensure!(
            !self.manifests.are_named() || (resources.is_empty() && !self.outline.is_given()),
            "-f cannot be combined with NAME and the flags that stand for a manifest"
        );
        let outline = self.outline.document(&resources)?;
        let documents = match (outline, self.manifests.are_named()) {
            (Some(document), _) => vec![document],
            (None, true) => self.manifests.read()?,
            (None, false) => bail!(
                "must specify one of -f and NAME; kubectl di create NAME --image=IMAGE needs no manifest"
            ),
        };
        let dry_run = self.dry_run.get();
        let cluster = match globals.connect().await {
            // Our own kinds can be checked anywhere.
            Err(_) if dry_run == DryRun::Client => None,
            connected => Some(connected?),
        };
        let namespace = match &cluster {
            Some(cluster) => cluster.namespace().clone(),
            None => globals.options().offline_namespace(),
        };
        let ready = prepare(cluster.as_ref(), &namespace, documents, Check::Whole).await?;
        let jobs = ready.iter().filter(|one| is_job(one)).count();
        ensure!(
            !self.follow || jobs == 1,
            "--follow is for one job; here are {jobs}"
        );
        let mut code = ExitCode::SUCCESS;
        let mut printer = Printer::new(&self.output, self.dry_run);
        let mut created = Vec::new();
        for one in &ready {
            let made = match &cluster {
                Some(cluster) if dry_run != DryRun::Client => {
                    di_client::create(cluster, one, dry_run == DryRun::Server).await
                }
                _ => Ok(placed(one)),
            };
            match made {
                Ok(object) => {
                    created.extend(job_of(one, &object));
                    printer.print(out, object, "created")?;
                }
                Err(error) => {
                    report(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        out.flush()?;
        let Some(cluster) = cluster.filter(|_| self.dry_run.is_real()) else {
            return Ok(code);
        };
        if self.follow {
            for (namespace, name) in &created {
                if let Err(error) = follow(&cluster.within(namespace), name, out).await {
                    report(&error);
                    code = ExitCode::FAILURE;
                }
            }
        } else if self.waiting.is_wanted() && !self.wait_for(&cluster, &created).await {
            code = ExitCode::FAILURE;
        }
        Ok(code)
    }

    /// Whether all of them got as far as to run.
    async fn wait_for(&self, cluster: &Cluster, created: &[(String, String)]) -> bool {
        let deadline = self.waiting.deadline();
        let mut all = true;
        for (namespace, name) in created {
            let cluster = cluster.within(namespace);
            let bar = Bar::spinner(format!("waiting for {name} to run"));
            let look = |job: &di_client::Job| {
                if let Some(trouble) = job.trouble() {
                    bar.say(format!("waiting for {name} to run ({trouble})"));
                }
                has_started(job)
            };
            let started = until(&cluster, name, deadline, look, condition_on).await;
            drop(bar);
            if let Err(error) = started {
                report(&error.into());
                all = false;
            }
        }
        all
    }
}

/// Shows what the coordinator says, and what holds the job up, until it has ended or nobody reads on.
async fn follow(cluster: &Cluster, name: &str, out: &mut impl Write) -> Result<()> {
    let mut told = None;
    let look = |job: &di_client::Job| {
        let runs = has_started(job) == Outlook::Met || job.has_ended();
        let trouble = job.trouble().filter(|_| !runs);
        if trouble != told
            && let Some(trouble) = &trouble
        {
            eprintln!("{} waits: {trouble}", job.title());
        }
        told = trouble;
        has_succeeded(job)
    };
    let ended = until(cluster, name, Deadline::after(None), look, condition_on);
    let said = logs::follow_coordinator(cluster, name, out);
    let (said, ended) = tokio::select! {
        // How it has ended is seen at once: the job may be gone when all has been read.
        both = async { tokio::join!(said, ended) } => both,
        () = output::closed() => return Ok(()),
    };
    if let Err(error) = said {
        report(&error);
    }
    ended?;
    Ok(())
}

fn is_job(ready: &Ready) -> bool {
    ready.api.kind == "DIJob" && ready.api.group == di_api::names::GROUP
}

/// Namespace and name of a job, by what the server made of it: it may have found the name.
fn job_of(ready: &Ready, object: &Value) -> Option<(String, String)> {
    let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
    is_job(ready).then(|| Some((text("namespace")?, text("name")?)))?
}

/// The object as it would be sent.
fn placed(ready: &Ready) -> Value {
    let mut object = ready.object.clone();
    if let Some(namespace) = &ready.namespace {
        object["metadata"]["namespace"] = namespace.as_str().into();
    }
    object
}
