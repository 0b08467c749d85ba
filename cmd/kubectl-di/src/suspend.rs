use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{Job, has_resumed, is_at_rest, until};

use crate::{
    dry_run::DryRunFlag,
    globals::Globals,
    output::report,
    printed::{Output, Printer},
    selection::{Chosen, Selection},
    waiting::{Bar, Waiting, condition_on},
};

/// Hold jobs: their pods go, their plan and what is declared stay.
///
/// To have the pods stay and do nothing, see pause.
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
    #[command(flatten)]
    output: Output,
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
        let chosen = self.selection.jobs(&cluster).await?;
        if chosen.is_empty() {
            self.selection.tell_nothing(&cluster);
        }
        let done = if held { "suspended" } else { "resumed" };
        let already = if held {
            "already suspended"
        } else {
            "not suspended"
        };
        let mut code = ExitCode::SUCCESS;
        let mut printer = Printer::new(&self.output, self.dry_run);
        let mut changed = Vec::new();
        for one in chosen {
            match di_client::suspend(&one.cluster, &one.name, held, self.dry_run.get()).await {
                Ok((job, has_changed)) => {
                    let done = if has_changed { done } else { already };
                    printer.print(out, job.object, done)?;
                    changed.push(one);
                }
                // One that has ended uses nothing, and need not be told of where nobody named it.
                Err(di_client::Error::Ended(_)) if !self.selection.is_by_name() => {}
                Err(error) if self.selection.has_gone(&error) => {}
                Err(error) => {
                    report(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        out.flush()?;
        if self.waiting.is_wanted()
            && self.dry_run.is_real()
            && !self.wait_for(held, &changed).await
        {
            code = ExitCode::FAILURE;
        }
        Ok(code)
    }

    async fn wait_for(&self, held: bool, chosen: &[Chosen]) -> bool {
        let deadline = self.waiting.deadline();
        let mut all = true;
        for Chosen { cluster, name } in chosen {
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
