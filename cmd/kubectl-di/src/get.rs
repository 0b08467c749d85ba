//! `kubectl di get`: lists jobs like kubectl.

mod rows;

use std::{io::Write, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use di_client::{Change, Cluster, Job, JobQuery, get_job, list_jobs, watch_jobs};
use futures::StreamExt;
use serde_json::Value;

use crate::{
    format::{self, Format, is_table},
    globals::Globals,
    manifests::{Manifests, SOURCE_CONFLICT},
    names::parse_job_name,
    output::{self, report_error, without_managed_fields},
    selection::{SelectedJob, non_empty, print_no_jobs},
    sort::sort_by,
};

use rows::Rows;

/// Display one or many jobs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # List jobs in the current namespace
  kubectl di get

  # List jobs in all namespaces, with the reasons for their states
  kubectl di get -A -o wide

  # Watch one job
  kubectl di get cartpole -w

  # Print the phase of a job
  kubectl di get cartpole -o jsonpath={.status.phase}

  # Sort by age, with custom columns
  kubectl di get --sort-by .metadata.creationTimestamp -o custom-columns=NAME:.metadata.name,WHY:.status.reason")]
#[allow(clippy::struct_excessive_bools)] // flags
pub struct Get {
    /// Names of jobs; without names, all jobs
    #[arg(value_name = "NAME", value_parser = parse_job_name)]
    names: Vec<String>,
    #[command(flatten)]
    manifests: Manifests,
    /// If present, list the requested jobs across all namespaces
    #[arg(short = 'A', long, conflicts_with = "names")]
    all_namespaces: bool,
    /// Selector (label query) to filter on, such as team=rl,tier!=test. Matching objects must
    /// satisfy all of the specified label constraints
    #[arg(short = 'l', long, conflicts_with = "names")]
    selector: Option<String>,
    /// Selector (field query) to filter on, such as metadata.name=cartpole. The server only
    /// supports a limited number of field queries per type
    #[arg(long, conflicts_with = "names")]
    field_selector: Option<String>,
    /// After listing/getting the requested object, watch for changes
    #[arg(short, long)]
    watch: bool,
    /// Watch for changes to the requested object(s), without listing/getting first
    #[arg(long)]
    watch_only: bool,
    /// Output format. One of: (json, yaml, name, jsonpath, jsonpath-as-json, jsonpath-file,
    /// custom-columns, custom-columns-file, wide)
    #[arg(short, long)]
    output: Option<Format>,
    /// If true, keep the managedFields when printing objects in JSON or YAML format
    #[arg(long)]
    show_managed_fields: bool,
    /// If non-empty, sort list types using this field specification, such as '{.metadata.name}'
    #[arg(long, value_name = "FIELD")]
    sort_by: Option<String>,
    /// When using the default or custom-column output format, don't print headers
    #[arg(long)]
    no_headers: bool,
    /// When printing, show all labels as the last column
    #[arg(long)]
    show_labels: bool,
    /// Accepts a comma separated list of labels that are going to be presented as columns
    #[arg(short = 'L', long, value_name = "LABEL", value_delimiter = ',')]
    label_columns: Vec<String>,
    /// If set to true, suppresses NotFound error for specific objects that do not exist
    #[arg(long)]
    ignore_not_found: bool,
    /// Return large lists in chunks rather than all at once. Pass 0 to disable
    #[arg(long, value_name = "N", default_value_t = 500)]
    chunk_size: u32,
}

impl Get {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        if self.watch || self.watch_only {
            return self.watch_and_print(&cluster, out).await;
        }
        let mut code = ExitCode::SUCCESS;
        let mut found = Vec::new();
        let named = self.named_jobs(&cluster).await?;
        if named.is_none() {
            found = list_jobs(&cluster, &self.job_query()).await?.jobs;
        }
        for SelectedJob { cluster, name } in named.iter().flatten() {
            match get_job(cluster, name).await {
                Ok(job) => found.push(job),
                Err(error) if error.is_not_found() && self.ignore_not_found => {}
                // Print the jobs that were found in spite of the error.
                Err(error) => {
                    report_error(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        self.sort_jobs(&mut found)?;
        self.print_jobs(&cluster, named.map(|named| named.len()), found, out)?;
        Ok(code)
    }

    /// The jobs that are given by name or manifest; none if a query selects the jobs.
    async fn named_jobs(&self, cluster: &Cluster) -> Result<Option<Vec<SelectedJob>>> {
        let query = self.job_query();
        let by_query = query.selector.is_some() || query.field_selector.is_some();
        let names = self.names.iter();
        Ok(match (self.manifests.are_given(), self.names.is_empty()) {
            (true, false) => bail!("{SOURCE_CONFLICT}"),
            (true, true) if by_query || self.all_namespaces => bail!("{SOURCE_CONFLICT}"),
            (true, true) => Some(self.manifests.read_jobs(cluster).await?),
            (false, true) => None,
            (false, false) => Some(
                names
                    .map(|name| SelectedJob::new(cluster.clone(), name))
                    .collect(),
            ),
        })
    }

    /// Prints jobs; `named` is the number of jobs given by name, if any.
    fn print_jobs(
        &self,
        cluster: &Cluster,
        named: Option<usize>,
        found: Vec<Job>,
        out: &mut impl Write,
    ) -> Result<()> {
        match &self.output {
            Some(format) if !is_table(Some(format)) => {
                // A single named job is printed as an object instead of a list.
                if named == Some(1) {
                    for job in found {
                        let object = self.displayed_object(job.object);
                        format::print_object(format, out, &object, !self.no_headers)?;
                    }
                    return Ok(());
                }
                if named.is_none() || !found.is_empty() {
                    let found = found.into_iter();
                    let objects: Vec<_> =
                        found.map(|job| self.displayed_object(job.object)).collect();
                    let list = output::to_list(&objects);
                    format::print_objects(format, out, &list, &objects, !self.no_headers)?;
                }
                Ok(())
            }
            // For named jobs, the errors were printed before.
            _ if found.is_empty() => {
                if named.is_none() {
                    self.print_no_jobs(cluster);
                }
                Ok(())
            }
            _ => self.new_rows().print_changed(&found, out),
        }
    }

    async fn watch_and_print(self, cluster: &Cluster, out: &mut impl Write) -> Result<ExitCode> {
        let mut query = self.job_query();
        let named = self.named_jobs(cluster).await?;
        let mut cluster = cluster;
        let (mut found, version) = match named.as_deref() {
            None => {
                let list = list_jobs(cluster, &query).await?;
                (list.jobs, list.resource_version)
            }
            Some([one]) => {
                cluster = &one.cluster;
                let job = match get_job(cluster, &one.name).await {
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
        self.sort_jobs(&mut found)?;
        if found.is_empty() && is_table(self.output.as_ref()) && !self.watch_only {
            self.print_no_jobs(cluster);
        }
        let mut rows = self.new_rows();
        if self.watch_only {
            rows.mark_shown(&found);
        } else {
            rows.print_changed(&found, out)?;
        }
        let events = watch_jobs(cluster, &query, &version, &found);
        let mut events = events.take_until(Box::pin(output::stdout_closed_or_timeout(cluster)));
        while let Some(event) = events.next().await {
            match event? {
                Change::Applied(job) => rows.print_changed(&[job], out)?,
                Change::Deleted(job) => rows.print_deleted(&job, out)?,
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn job_query(&self) -> JobQuery {
        JobQuery {
            all_namespaces: self.all_namespaces,
            selector: non_empty(self.selector.as_deref()),
            name: None,
            field_selector: non_empty(self.field_selector.as_deref()),
            chunk_size: Some(self.chunk_size),
        }
    }

    fn displayed_object(&self, object: Value) -> Value {
        if self.show_managed_fields {
            object
        } else {
            without_managed_fields(object)
        }
    }

    fn new_rows(&self) -> Rows<'_> {
        Rows::new(self)
    }

    fn sort_jobs(&self, found: &mut [Job]) -> Result<()> {
        match &self.sort_by {
            Some(field) => sort_by(found, field, |job| &job.object),
            None => Ok(()),
        }
    }

    fn print_no_jobs(&self, cluster: &Cluster) {
        if !self.ignore_not_found {
            print_no_jobs(cluster, self.all_namespaces);
        }
    }
}
