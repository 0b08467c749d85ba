//! `kubectl di describe`: all about a job on one screen.

mod screen;
mod tree;

use std::{io::Write, process::ExitCode};

use anyhow::{Result, ensure};
use clap::{ArgAction, Args};
use di_client::{Cluster, Job, JobQuery, Known, Whose, events, job, jobs, replicas};
use jiff::Timestamp;

use crate::{
    colour::Colours,
    globals::Globals,
    manifests::{EITHER, Manifests},
    names::job_name,
    output::{report, warn_unseen},
    selection::{Chosen, given},
};

use screen::Screen;
pub use screen::seen;

/// Show all about jobs: phase, conditions, replicas and recent events.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # All about one job
  kubectl di describe cartpole

  # About every job whose name begins so
  kubectl di describe cart

  # About those of a team
  kubectl di describe -l team=rl")]
pub struct Describe {
    /// Names of jobs, or what their names begin with; all jobs when there are none
    #[arg(value_name = "NAME", value_parser = job_name)]
    names: Vec<String>,
    #[command(flatten)]
    manifests: Manifests,
    /// Jobs of all namespaces
    #[arg(short = 'A', long, conflicts_with = "names")]
    all_namespaces: bool,
    /// Only jobs whose labels match, as team=rl,tier!=test
    #[arg(short = 'l', long, conflicts_with = "names")]
    selector: Option<String>,
    /// Show events, too
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true
    )]
    show_events: bool,
    /// How many jobs the server is asked for at a time; 0 asks for all at once
    #[arg(long, value_name = "N", default_value_t = 500)]
    chunk_size: u32,
}

impl Describe {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let mut code = ExitCode::SUCCESS;
        let mut found = Vec::new();
        let by_query = self.all_namespaces || given(self.selector.as_deref()).is_some();
        if self.manifests.are_named() {
            ensure!(self.names.is_empty() && !by_query, "{EITHER}");
            for Chosen { cluster, name } in self.manifests.jobs(&cluster).await? {
                match job(&cluster, &name).await {
                    Ok(job) => found.push(job),
                    Err(error) => {
                        report(&error.into());
                        code = ExitCode::FAILURE;
                    }
                }
            }
        } else if self.names.is_empty() {
            found = jobs(&cluster, &self.query()).await?.jobs;
            if found.is_empty() {
                let namespace = &cluster.namespace().name;
                let place = if self.all_namespaces {
                    String::new()
                } else {
                    format!(" in {namespace} namespace.")
                };
                eprintln!("No resources found{place}");
            }
        }
        for name in &self.names {
            match self.named(&cluster, name).await {
                Ok(jobs) => found.extend(jobs),
                Err(error) => {
                    report(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        let mut shown = 0;
        for job in &found {
            match self.text(&cluster, job).await {
                Ok(text) => {
                    let gap = if shown > 0 { "\n\n" } else { "" };
                    write!(out, "{gap}{text}")?;
                    shown += 1;
                }
                Err(error) => {
                    report(&error);
                    code = ExitCode::FAILURE;
                }
            }
        }
        Ok(code)
    }

    /// The job of this name, else those whose names begin with it, as kubectl describes things.
    async fn named(&self, cluster: &Cluster, name: &str) -> di_client::Result<Vec<Job>> {
        let missing = match job(cluster, name).await {
            Err(error) if error.is_not_found() => error,
            other => return Ok(vec![other?]),
        };
        let mut all = jobs(cluster, &self.query()).await?.jobs;
        all.retain(|job| job.name().starts_with(name));
        if all.is_empty() {
            Err(missing)
        } else {
            Ok(all)
        }
    }

    async fn text(&self, cluster: &Cluster, job: &Job) -> Result<String> {
        let Known { replicas, unseen } = replicas(cluster, job).await?;
        if let Some(why) = unseen {
            warn_unseen(&why);
        }
        let events = if self.show_events {
            Some(match events(cluster, &mut Whose::job(job)).await {
                Ok(told) => Ok(told.events),
                // Whoever may not see events sees the rest.
                Err(error) => Err(error.to_string()),
            })
        } else {
            None
        };
        Ok(Screen {
            job,
            replicas: &replicas,
            events: events.as_ref(),
            now: Timestamp::now(),
            colours: Colours::of_stdout(),
        }
        .to_string())
    }

    fn query(&self) -> JobQuery {
        JobQuery {
            all_namespaces: self.all_namespaces,
            selector: given(self.selector.as_deref()),
            chunk_size: Some(self.chunk_size),
            ..JobQuery::default()
        }
    }
}
