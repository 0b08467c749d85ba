//! `kubectl di get`: jobs, as kubectl shows objects.

mod rows;

use std::{io::Write, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use di_client::{Change, Cluster, Job, JobQuery, job, jobs, watch_jobs};
use futures::StreamExt;

use crate::{
    format::{self, Format, is_table},
    globals::Globals,
    names::job_name,
    output::{self, presentable, report},
    sort::sort_by,
};

use rows::Rows;

/// Show jobs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Jobs of the current namespace
  kubectl di get

  # Jobs of all namespaces, and why they are not better off
  kubectl di get -A -o wide

  # Follow one job
  kubectl di get cartpole -w

  # The phase of a job, for scripts
  kubectl di get cartpole -o jsonpath={.status.phase}

  # The oldest first, with columns of one's own
  kubectl di get --sort-by .metadata.creationTimestamp -o custom-columns=NAME:.metadata.name,WHY:.status.reason")]
#[allow(clippy::struct_excessive_bools)] // flags
pub struct Get {
    /// Names of jobs; all when there are none
    #[arg(value_name = "NAME", value_parser = job_name)]
    names: Vec<String>,
    /// Jobs of all namespaces
    #[arg(short = 'A', long, conflicts_with = "names")]
    all_namespaces: bool,
    /// Only jobs whose labels match, as team=rl,tier!=test
    #[arg(short = 'l', long, conflicts_with = "names")]
    selector: Option<String>,
    /// Only jobs whose fields match, as metadata.name=cartpole
    #[arg(long, conflicts_with = "names")]
    field_selector: Option<String>,
    /// Go on with every change
    #[arg(short, long)]
    watch: bool,
    /// Only changes, not what is there already
    #[arg(long)]
    watch_only: bool,
    /// Another form than the table: wide, json, yaml, name, jsonpath=…, jsonpath-file=…, custom-columns=… or custom-columns-file=…
    #[arg(short, long)]
    output: Option<Format>,
    /// Sort by a field, as .metadata.name
    #[arg(long, value_name = "FIELD")]
    sort_by: Option<String>,
    /// Leave out the names of the columns
    #[arg(long)]
    no_headers: bool,
    /// Show labels as the last column
    #[arg(long)]
    show_labels: bool,
    /// Labels to show as columns of their own
    #[arg(short = 'L', long, value_name = "LABEL", value_delimiter = ',')]
    label_columns: Vec<String>,
    /// What is not there is no failure
    #[arg(long)]
    ignore_not_found: bool,
    /// How many jobs the server is asked for at a time; 0 asks for all at once
    #[arg(long, value_name = "N", default_value_t = 500)]
    chunk_size: u32,
}

impl Get {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        if self.watch || self.watch_only {
            return self.follow(&cluster, out).await;
        }
        let mut code = ExitCode::SUCCESS;
        let mut found = Vec::new();
        if self.names.is_empty() {
            found = jobs(&cluster, &self.query()).await?.jobs;
        }
        for name in &self.names {
            match job(&cluster, name).await {
                Ok(job) => found.push(job),
                Err(error) if error.is_not_found() && self.ignore_not_found => {}
                Err(error) if error.is_not_found() => {
                    report(&error.into());
                    code = ExitCode::FAILURE;
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.sort(&mut found)?;
        self.print(&cluster, found, out)?;
        Ok(code)
    }

    fn print(&self, cluster: &Cluster, found: Vec<Job>, out: &mut impl Write) -> Result<()> {
        match &self.output {
            Some(format) if !is_table(Some(format)) => {
                // One that was asked for by name is shown alone, or not at all.
                if self.names.len() == 1 {
                    for job in found {
                        let object = presentable(job.object);
                        format::print(
                            format,
                            out,
                            &object,
                            std::slice::from_ref(&object),
                            !self.no_headers,
                        )?;
                    }
                    return Ok(());
                }
                if self.names.is_empty() || !found.is_empty() {
                    let objects = found.into_iter().map(|job| job.object).collect();
                    let list = output::list(objects);
                    let items = list["items"].as_array().map(Vec::as_slice);
                    format::print(
                        format,
                        out,
                        &list,
                        items.unwrap_or_default(),
                        !self.no_headers,
                    )?;
                }
                Ok(())
            }
            _ if found.is_empty() => {
                self.tell_nothing(cluster);
                Ok(())
            }
            _ => self.rows().show(&found, out),
        }
    }

    async fn follow(self, cluster: &Cluster, out: &mut impl Write) -> Result<ExitCode> {
        let mut query = self.query();
        let (mut found, version) = match self.names.as_slice() {
            [] => {
                let list = jobs(cluster, &query).await?;
                (list.jobs, list.resource_version)
            }
            [name] => {
                let job = match job(cluster, name).await {
                    Err(error) if error.is_not_found() && self.ignore_not_found => {
                        return Ok(ExitCode::SUCCESS);
                    }
                    other => other?,
                };
                query.name = Some(name.clone());
                let version = job.metadata.resource_version.clone();
                (vec![job], version.unwrap_or_default())
            }
            _ => bail!("watch is only supported on one job or all of them"),
        };
        if self.sort_by.is_some() {
            eprintln!(
                "warning: --watch requested, --sort-by will be ignored for watch events received"
            );
        }
        self.sort(&mut found)?;
        if found.is_empty() && is_table(self.output.as_ref()) && !self.watch_only {
            self.tell_nothing(cluster);
        }
        let mut rows = self.rows();
        if self.watch_only {
            rows.know(&found);
        } else {
            rows.show(&found, out)?;
        }
        let events = watch_jobs(cluster, &query, &version);
        let mut events = events.take_until(Box::pin(output::closed()));
        while let Some(event) = events.next().await {
            match event? {
                Change::Applied(job) => rows.show(&[job], out)?,
                Change::Deleted(job) => rows.show_last(&job, out)?,
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn query(&self) -> JobQuery {
        JobQuery {
            all_namespaces: self.all_namespaces,
            selector: self.selector.clone(),
            name: None,
            field_selector: self.field_selector.clone(),
            chunk_size: Some(self.chunk_size),
        }
    }

    fn rows(&self) -> Rows<'_> {
        Rows::new(self)
    }

    fn sort(&self, found: &mut [Job]) -> Result<()> {
        match &self.sort_by {
            Some(field) => sort_by(found, field, |job| &job.object),
            None => Ok(()),
        }
    }

    fn tell_nothing(&self, cluster: &Cluster) {
        // Then the errors tell already; or nobody is to be told.
        if !self.names.is_empty() || self.ignore_not_found {
            return;
        }
        if self.all_namespaces {
            eprintln!("No resources found");
        } else {
            let namespace = &cluster.namespace().name;
            eprintln!("No resources found in {namespace} namespace.");
        }
    }
}
