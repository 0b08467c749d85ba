//! `kubectl di get`: jobs, as kubectl shows objects.

mod rows;

use std::{io::Write, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use di_client::{Change, Cluster, Job, JobQuery, job, jobs, watch_jobs};
use futures::StreamExt;
use serde_json::Value;

use crate::{
    format::{self, Format, is_table},
    globals::Globals,
    manifests::{EITHER, Manifests},
    names::job_name,
    output::{self, presentable, report},
    selection::{Chosen, given, tell_nothing},
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
    #[command(flatten)]
    manifests: Manifests,
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
    /// Another form than the table: wide, json, yaml, name, jsonpath=…, jsonpath-as-json=…, jsonpath-file=…, custom-columns=… or custom-columns-file=…
    #[arg(short, long)]
    output: Option<Format>,
    /// Show who wrote which fields, too
    #[arg(long)]
    show_managed_fields: bool,
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
        let named = self.named(&cluster).await?;
        if named.is_none() {
            found = jobs(&cluster, &self.query()).await?.jobs;
        }
        for Chosen { cluster, name } in named.iter().flatten() {
            match job(cluster, name).await {
                Ok(job) => found.push(job),
                Err(error) if error.is_not_found() && self.ignore_not_found => {}
                // What is known of the others is shown all the same.
                Err(error) => {
                    report(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        self.sort(&mut found)?;
        self.print(&cluster, named.map(|named| named.len()), found, out)?;
        Ok(code)
    }

    /// The jobs that were asked for one by one.
    async fn named(&self, cluster: &Cluster) -> Result<Option<Vec<Chosen>>> {
        let query = self.query();
        let by_query = query.selector.is_some() || query.field_selector.is_some();
        let names = self.names.iter();
        Ok(match (self.manifests.are_named(), self.names.is_empty()) {
            (true, false) => bail!("{EITHER}"),
            (true, true) if by_query || self.all_namespaces => bail!("{EITHER}"),
            (true, true) => Some(self.manifests.jobs(cluster).await?),
            (false, true) => None,
            (false, false) => Some(
                names
                    .map(|name| Chosen::new(cluster.clone(), name))
                    .collect(),
            ),
        })
    }

    /// `named` is how many were asked for one by one.
    fn print(
        &self,
        cluster: &Cluster,
        named: Option<usize>,
        found: Vec<Job>,
        out: &mut impl Write,
    ) -> Result<()> {
        match &self.output {
            Some(format) if !is_table(Some(format)) => {
                // One that was asked for by name is shown alone, or not at all.
                if named == Some(1) {
                    for job in found {
                        let object = self.presentable(job.object);
                        format::print_one(format, out, &object, !self.no_headers)?;
                    }
                    return Ok(());
                }
                if named.is_none() || !found.is_empty() {
                    let found = found.into_iter();
                    let objects: Vec<_> = found.map(|job| self.presentable(job.object)).collect();
                    let list = output::list_whole(&objects);
                    format::print(format, out, &list, &objects, !self.no_headers)?;
                }
                Ok(())
            }
            // Where they were named, the errors tell already.
            _ if found.is_empty() => {
                if named.is_none() {
                    self.tell_nothing(cluster);
                }
                Ok(())
            }
            _ => self.rows().show(&found, out),
        }
    }

    async fn follow(self, cluster: &Cluster, out: &mut impl Write) -> Result<ExitCode> {
        let mut query = self.query();
        let named = self.named(cluster).await?;
        let mut cluster = cluster;
        let (mut found, version) = match named.as_deref() {
            None => {
                let list = jobs(cluster, &query).await?;
                (list.jobs, list.resource_version)
            }
            Some([one]) => {
                cluster = &one.cluster;
                let job = match job(cluster, &one.name).await {
                    Err(error) if error.is_not_found() && self.ignore_not_found => {
                        return Ok(ExitCode::SUCCESS);
                    }
                    other => other?,
                };
                query.name = Some(one.name.clone());
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
        let events = watch_jobs(cluster, &query, &version, &found);
        let mut events = events.take_until(Box::pin(output::seen_enough(cluster)));
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
            selector: given(self.selector.as_deref()),
            name: None,
            field_selector: given(self.field_selector.as_deref()),
            chunk_size: Some(self.chunk_size),
        }
    }

    fn presentable(&self, object: Value) -> Value {
        if self.show_managed_fields {
            object
        } else {
            presentable(object)
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
        if !self.ignore_not_found {
            tell_nothing(cluster, self.all_namespaces);
        }
    }
}
