mod job_flags;

use std::{io::Write, process::ExitCode};

use anyhow::{Result, bail, ensure};
use clap::Args;
use di_client::{
    Cluster, Deadline, Document, DryRun, PreparedObject, WaitState, describe_wait, prepare_objects,
    started_state, succeeded_state, wait_for_job,
};
use serde_json::{Value, json};

use crate::{
    flags::{
        dry_run::DryRunFlag, globals::Globals, manifests::Manifests, resources::Resources,
        wait::WaitFlags,
    },
    output::{
        self,
        printer::{OutputFlags, Printer},
        progress_bar::ProgressBar,
        report_error,
    },
    verbs::logs,
};

/// Create DIJobs, AggregatorConfigs and other objects from manifests, or a DIJob from flags.
///
/// All documents are checked before any is sent: every fault is printed, and nothing is created if
/// there is one. Manifests of the kind NerveXJob, and DIJobs of version v2alpha1, are converted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Create a job, and wait until it is running
  kubectl di create -f cartpole.yaml --wait --timeout=5m

  # Create a job, and print the log of its coordinator until it ends; fails if the job fails
  kubectl di create -f cartpole.yaml --follow

  # Create a job without a manifest: a coordinator, four collectors, a learner with two GPUs
  kubectl di create cartpole --image=registry/train:v1 --collectors=4 --learners=1 --gpus=2 -- python -m train

  # Print a manifest to start from
  kubectl di create cartpole --image=registry/train:v1 --collectors=4 --dry-run=client -o yaml

  # Create all objects in a directory and its subdirectories
  kubectl di create -f jobs -R

  # Create objects from standard input, and print them as created
  cat cartpole.yaml | kubectl di create -f - -o yaml")]
pub struct Create {
    #[command(flatten)]
    job: job_flags::JobFlags,
    #[command(flatten, next_help_heading = "Flags instead of a manifest")]
    resources: Resources,
    #[command(flatten)]
    manifests: Manifests,
    #[command(flatten)]
    dry_run: DryRunFlag,
    #[command(flatten)]
    output: OutputFlags,
    #[command(flatten)]
    waiting: WaitFlags,
    /// Print the log of the coordinator until the job has ended, and fail if the job fails.
    /// Interrupting the command does not change the job
    #[arg(long, conflicts_with = "timeout")]
    follow: bool,
    /// Fail the job as soon as any pod exits with 2, 64, 78, 126 or 127: a wrong flag, a wrong
    /// configuration, or a command that cannot run. Adds this to spec.failureRules as the first
    /// rule
    #[arg(long)]
    fail_fast: bool,
}

/// Adds the rule of --fail-fast to a job, before its own rules.
fn add_fail_fast_rule(document: &mut Document) {
    let object = &mut document.object;
    if object["kind"] != "DIJob" || !object["spec"].is_object() {
        return;
    }
    // Misuse of shell commands, and EX_USAGE and EX_CONFIG of sysexits.h.
    let codes = json!({"operator": "In", "values": [2, 64, 78, 126, 127]});
    let rule = json!({"name": "fail-fast", "onExitCodes": codes, "action": "FailJob"});
    let rules = &mut object["spec"]["failureRules"];
    if rules.is_null() {
        *rules = json!([]);
    }
    // Validation rejects anything but a list, and another rule of this name.
    if let Some(rules) = rules.as_array_mut().filter(|rules| !rules.contains(&rule)) {
        rules.insert(0, rule);
    }
}

impl Create {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let resources = self.resources.get();
        ensure!(
            !self.manifests.are_given() || (resources.is_empty() && !self.job.is_given()),
            "-f cannot be combined with NAME or the flags that replace a manifest"
        );
        let from_flags = self.job.to_document(&resources)?;
        let mut documents = match (from_flags, self.manifests.are_given()) {
            (Some(document), _) => vec![document],
            (None, true) => self.manifests.read_documents()?,
            (None, false) => bail!(
                "must specify one of -f and NAME; kubectl di create NAME --image=IMAGE needs no manifest"
            ),
        };
        if self.fail_fast {
            documents.iter_mut().for_each(add_fail_fast_rule);
        }
        let dry_run = self.dry_run.get();
        let stdin_in_use = self.manifests.use_stdin();
        let cluster = match globals.connect_with_stdin(stdin_in_use).await {
            // A client dry run needs no cluster: our own kinds are checked locally.
            Err(_) if dry_run == DryRun::Client => None,
            connected => Some(connected?),
        };
        let namespace = match &cluster {
            Some(cluster) => cluster.namespace().clone(),
            None => globals.connect_options().offline_namespace(),
        };
        let ready = prepare_objects(cluster.as_ref(), &namespace, documents).await?;
        let jobs = ready.iter().filter(|one| is_job(one)).count();
        ensure!(
            !self.follow || jobs == 1,
            "--follow supports exactly one job; found {jobs}"
        );
        let mut code = ExitCode::SUCCESS;
        let mut printer = Printer::new(&self.output, self.dry_run);
        let mut created = Vec::new();
        for one in &ready {
            let result = match &cluster {
                Some(cluster) if dry_run != DryRun::Client => {
                    di_client::create_object(cluster, one, dry_run == DryRun::Server).await
                }
                _ => Ok(with_namespace(one)),
            };
            match result {
                Ok(object) => {
                    created.extend(created_job(one, &object));
                    printer.print_change(out, object, "created")?;
                }
                Err(error) => {
                    report_error(&error.into());
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
                if let Err(error) = follow_job(&cluster.with_namespace(namespace), name, out).await
                {
                    report_error(&error);
                    code = ExitCode::FAILURE;
                }
            }
        } else if self.waiting.is_wanted() && !self.wait_until_started(&cluster, &created).await {
            code = ExitCode::FAILURE;
        }
        Ok(code)
    }

    /// Waits until the jobs are running; returns whether all are.
    async fn wait_until_started(&self, cluster: &Cluster, created: &[(String, String)]) -> bool {
        let deadline = self.waiting.deadline();
        let mut all_started = true;
        for (namespace, name) in created {
            let cluster = cluster.with_namespace(namespace);
            let bar = ProgressBar::spinner(format!("waiting for {name} to run"));
            let check = |job: &di_client::Job| {
                if let Some(trouble) = job.problem_summary() {
                    bar.set_message(format!("waiting for {name} to run ({trouble})"));
                }
                started_state(job)
            };
            let started = wait_for_job(
                &cluster,
                name,
                deadline,
                check,
                describe_wait("phase Running"),
            )
            .await;
            drop(bar);
            if let Err(error) = started {
                report_error(&error.into());
                all_started = false;
            }
        }
        all_started
    }
}

/// Prints the log of the coordinator to `out` and errors of the job to stderr.
///
/// Returns when the job has ended or stdout is closed.
async fn follow_job(cluster: &Cluster, name: &str, out: &mut impl Write) -> Result<()> {
    let mut printed = None;
    let check = |job: &di_client::Job| {
        let runs = started_state(job) == WaitState::Met || job.has_ended();
        let trouble = job.problem_summary().filter(|_| !runs);
        if trouble != printed
            && let Some(trouble) = &trouble
        {
            eprintln!("{} is waiting: {trouble}", job.resource_name());
        }
        printed = trouble;
        succeeded_state(job)
    };
    let ended = wait_for_job(
        cluster,
        name,
        Deadline::after(None),
        check,
        describe_wait("the end"),
    );
    let followed = logs::follow_coordinator(cluster, name, out);
    let (followed, ended) = tokio::select! {
        // Watch the job while its log is read: it may be deleted before the log ends.
        both = async { tokio::join!(followed, ended) } => both,
        () = output::stdout_closed() => return Ok(()),
    };
    if let Err(error) = followed {
        report_error(&error);
    }
    ended?;
    Ok(())
}

fn is_job(ready: &PreparedObject) -> bool {
    ready.api.kind == "DIJob" && ready.api.group == di_api::names::GROUP
}

/// The namespace and name of a created job. The server fills in a generated name.
fn created_job(ready: &PreparedObject, object: &Value) -> Option<(String, String)> {
    let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
    is_job(ready).then(|| Some((text("namespace")?, text("name")?)))?
}

/// The object with the namespace that it would be sent to.
fn with_namespace(ready: &PreparedObject) -> Value {
    let mut object = ready.object.clone();
    if let Some(namespace) = &ready.namespace {
        object["metadata"]["namespace"] = namespace.as_str().into();
    }
    object
}
