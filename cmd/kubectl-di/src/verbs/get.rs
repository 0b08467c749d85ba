use std::{collections::HashMap, io::Write, process::ExitCode, slice};

use anyhow::{Result, bail};
use clap::Args;
use di_client::{Change, Cluster, Job, JobQuery, get_job, list_jobs, watch_jobs};
use futures::StreamExt;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    flags::{
        globals::Globals,
        names::parse_job_name,
        selection::{non_empty, print_no_jobs},
    },
    output::{
        self,
        format::{self, Format},
        report_error,
        rows::JobRow,
        table::Table,
        without_managed_fields,
    },
};

/// Display one or many jobs.
///
/// For other formats, sorting and field selectors, use kubectl get dijob.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # List jobs in the current namespace
  kubectl di get

  # List jobs in all namespaces, with the reasons for their states
  kubectl di get -A -o wide

  # Watch one job
  kubectl di get cartpole -w")]
pub struct Get {
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
    /// After listing/getting the requested object, watch for changes
    #[arg(short, long)]
    watch: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

impl Get {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        if self.watch {
            return self.watch_and_print(&cluster, out).await;
        }
        let mut code = ExitCode::SUCCESS;
        let mut found = Vec::new();
        if self.names.is_empty() {
            found = list_jobs(&cluster, &self.job_query()).await?.jobs;
        }
        for name in &self.names {
            match get_job(&cluster, name).await {
                Ok(job) => found.push(job),
                // Print the jobs that were found in spite of the error.
                Err(error) => {
                    report_error(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        self.print_jobs(&cluster, found, out)?;
        Ok(code)
    }

    fn print_jobs(&self, cluster: &Cluster, found: Vec<Job>, out: &mut impl Write) -> Result<()> {
        match self.output.and_then(Format::objects) {
            Some(format) => {
                let objects: Vec<_> = found.into_iter().map(displayed_object).collect();
                // A single named job is printed as an object instead of a list.
                if self.names.len() == 1 {
                    objects
                        .iter()
                        .try_for_each(|object| format::print_object(format, out, object))?;
                } else if self.names.is_empty() || !objects.is_empty() {
                    format::print_objects(format, out, &output::to_list(&objects), &objects)?;
                }
                Ok(())
            }
            // For named jobs, the errors were printed before.
            None if found.is_empty() && self.names.is_empty() => {
                print_no_jobs(cluster, self.all_namespaces);
                Ok(())
            }
            None if found.is_empty() => Ok(()),
            None => Rows::new(self).print_changed(&found, out),
        }
    }

    async fn watch_and_print(self, cluster: &Cluster, out: &mut impl Write) -> Result<ExitCode> {
        let mut query = self.job_query();
        let (found, version) = match self.names.as_slice() {
            [] => {
                let list = list_jobs(cluster, &query).await?;
                (list.jobs, list.resource_version)
            }
            [name] => {
                let job = get_job(cluster, name).await?;
                query.name = Some(name.clone());
                let version = job.metadata.resource_version.clone();
                (vec![job], version.unwrap_or_default())
            }
            _ => bail!("watch is only supported on one job or all of them"),
        };
        let mut rows = Rows::new(&self);
        if found.is_empty() && rows.format.is_none() {
            print_no_jobs(cluster, self.all_namespaces);
        }
        rows.print_changed(&found, out)?;
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
        }
    }
}

fn displayed_object(job: Job) -> Value {
    without_managed_fields(job.object)
}

/// The rows that a watch has printed, so that unchanged rows are not printed again.
struct Rows {
    format: Option<format::ObjectFormat>,
    namespaces: bool,
    wide: bool,
    table: Table,
    shown: HashMap<(String, String), JobRow>,
}

impl Rows {
    fn new(get: &Get) -> Self {
        let (namespaces, wide) = (get.all_namespaces, get.output == Some(Format::Wide));
        Self {
            format: get.output.and_then(Format::objects),
            namespaces,
            wide,
            table: Table::new(&JobRow::column_headers(namespaces, wide), true),
            shown: HashMap::new(),
        }
    }

    /// Prints the jobs that changed.
    fn print_changed(&mut self, jobs: &[Job], out: &mut impl Write) -> Result<()> {
        let mut rows = Vec::new();
        for job in jobs {
            if let Some(format) = self.format {
                format::print_watched(format, out, &displayed_object(job.clone()))?;
                continue;
            }
            let new = JobRow::new(job, Timestamp::now());
            let old = self.shown.insert(job_key(job), new.clone());
            if !old.is_some_and(|old| old.equals_except_age(&new)) {
                rows.push(new.into_cells(self.namespaces, self.wide));
            }
        }
        if !rows.is_empty() {
            out.write_all(self.table.render(&rows).as_bytes())?;
        }
        Ok(out.flush()?)
    }

    /// Prints the last state of a deleted job.
    fn print_deleted(&mut self, job: &Job, out: &mut impl Write) -> Result<()> {
        self.shown.remove(&job_key(job));
        self.print_changed(slice::from_ref(job), out)?;
        self.shown.remove(&job_key(job));
        Ok(())
    }
}

fn job_key(job: &Job) -> (String, String) {
    (job.namespace().to_owned(), job.name().to_owned())
}
