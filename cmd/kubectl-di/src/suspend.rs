use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{Cluster, Job, has_resumed, is_at_rest, until};

use crate::{
    dry_run::DryRunFlag,
    globals::Globals,
    output::{ObjectFormat, report},
    printed::Printer,
    selection::{Selection, nothing},
    waiting::{Bar, Waiting, condition_on},
};

/// Hold jobs: their pods go, their plan and what is declared stay.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Hold a job, and wait until no pod of it is left
  kubectl di suspend cartpole --wait

  # Hold all jobs of the namespace
  kubectl di suspend --all")]
pub struct Suspend {
    #[command(flatten)]
    hold: Hold,
}

/// Let held jobs go on: their coordinators are started anew.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Let a job go on, and wait until it runs
  kubectl di resume cartpole --wait

  # Let all jobs of a team go on
  kubectl di resume -l team=rl")]
pub struct Resume {
    #[command(flatten)]
    hold: Hold,
}

#[derive(Debug, Args)]
struct Hold {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    dry_run: DryRunFlag,
    /// Show the jobs instead of telling that they were changed
    #[arg(short, long)]
    output: Option<ObjectFormat>,
    #[command(flatten)]
    waiting: Waiting,
}

impl Suspend {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        self.hold.run(true, globals, out).await
    }
}

impl Resume {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        self.hold.run(false, globals, out).await
    }
}

impl Hold {
    async fn run(self, held: bool, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let mut names = self.selection.names(&cluster).await?;
        if names.is_empty() {
            eprintln!("{}", nothing(&cluster));
        }
        let done = if held { "suspended" } else { "resumed" };
        let already = if held {
            "already suspended"
        } else {
            "not suspended"
        };
        let mut code = ExitCode::SUCCESS;
        let mut printer = Printer::new(self.output, self.dry_run);
        let mut changed = Vec::new();
        for name in names.drain(..) {
            match di_client::suspend(&cluster, &name, held, self.dry_run.get()).await {
                Ok((job, has_changed)) => {
                    let done = if has_changed { done } else { already };
                    printer.print(out, job.object, done)?;
                    changed.push(name);
                }
                // One that has ended uses nothing, and need not be told of where nobody named it.
                Err(di_client::Error::Ended(_)) if !self.selection.is_by_name() => {}
                Err(error) => {
                    report(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        out.flush()?;
        if self.waiting.is_wanted()
            && self.dry_run.is_real()
            && !self.wait_for(&cluster, held, &changed).await
        {
            code = ExitCode::FAILURE;
        }
        Ok(code)
    }

    async fn wait_for(&self, cluster: &Cluster, held: bool, names: &[String]) -> bool {
        let deadline = self.waiting.deadline();
        let mut all = true;
        for name in names {
            let what = if held {
                format!("waiting for the pods of {name} to go")
            } else {
                format!("waiting for {name} to run")
            };
            let bar = Bar::spinner(what);
            let look = |job: &Job| {
                if held {
                    is_at_rest(job)
                } else {
                    has_resumed(job)
                }
            };
            let met = until(cluster, name, deadline, look, condition_on).await;
            drop(bar);
            if let Err(error) = met {
                report(&error.into());
                all = false;
            }
        }
        all
    }
}
