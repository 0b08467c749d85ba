//! `kubectl di describe`: the details of jobs.

mod cells;
mod gang_cell;
mod queue_fields;
mod screen;
mod tree;

use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::{ArgAction, Args};
use di_client::{
    Cluster, EventFilter, Job, JobQuery, ReplicaList, get_job, list_events, list_jobs,
    list_replicas, read_queue_position,
};
use jiff::Timestamp;

use crate::{
    flags::{
        globals::Globals,
        names::parse_job_name,
        selection::{non_empty, print_no_jobs},
    },
    output::{colour::Colours, report_error, warn_planned_only},
};

use screen::Screen;

/// Show details of jobs: phase, conditions, replicas and recent events.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Describe a job
  kubectl di describe cartpole

  # Describe the jobs of a team
  kubectl di describe -l team=rl")]
pub struct Describe {
    /// Names of jobs; without names, all jobs
    #[arg(value_name = "NAME", value_parser = parse_job_name)]
    names: Vec<String>,
    /// If present, list the requested jobs across all namespaces
    #[arg(short = 'A', long, conflicts_with = "names")]
    all_namespaces: bool,
    /// Selector (label query) to filter on, such as team=rl,tier!=test. Matching objects must
    /// satisfy all of the specified label constraints
    #[arg(short = 'l', long, conflicts_with = "names")]
    selector: Option<String>,
    /// If true, display events related to the described object
    #[arg(
        long,
        action = ArgAction::Set,
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true
    )]
    show_events: bool,
}

impl Describe {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let mut code = ExitCode::SUCCESS;
        let mut found = Vec::new();
        if self.names.is_empty() {
            let query = JobQuery {
                all_namespaces: self.all_namespaces,
                selector: non_empty(self.selector.as_deref()),
                ..JobQuery::default()
            };
            found = list_jobs(&cluster, &query).await?.jobs;
            if found.is_empty() {
                print_no_jobs(&cluster, self.all_namespaces);
            }
        }
        for name in &self.names {
            match get_job(&cluster, name).await {
                Ok(job) => found.push(job),
                Err(error) => {
                    report_error(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        let mut printed = 0;
        for job in &found {
            match self.describe_job(&cluster, job).await {
                Ok(text) => {
                    let gap = if printed > 0 { "\n\n" } else { "" };
                    write!(out, "{gap}{text}")?;
                    printed += 1;
                }
                Err(error) => {
                    report_error(&error);
                    code = ExitCode::FAILURE;
                }
            }
        }
        Ok(code)
    }

    async fn describe_job(&self, cluster: &Cluster, job: &Job) -> Result<String> {
        let ReplicaList { replicas, unseen } = list_replicas(cluster, job).await?;
        if let Some(why) = unseen {
            warn_planned_only(&why);
        }
        let events = if self.show_events {
            Some(
                match list_events(cluster, &mut EventFilter::for_job(job)).await {
                    Ok(found) => Ok(found.events),
                    // Describe the job even if the user may not list events.
                    Err(error) => Err(error.to_string()),
                },
            )
        } else {
            None
        };
        Ok(Screen {
            job,
            replicas: &replicas,
            events: events.as_ref(),
            queue_position: read_queue_position(cluster, job).await,
            now: Timestamp::now(),
            colours: Colours::for_stdout(),
        }
        .to_string())
    }
}
