use std::{collections::HashMap, io::Write, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use di_client::{Cluster, Job, JobEvent, JobQuery, job, jobs, watch_jobs};
use futures::StreamExt;
use jiff::Timestamp;

use crate::{
    globals::Globals,
    output::{self, Format, presentable, report, title},
    rows::JobRow,
    table::Table,
};

/// Show jobs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Jobs of the current namespace
  kubectl di get

  # Jobs of all namespaces, and why they are not better off
  kubectl di get -A -o wide

  # Follow one job
  kubectl di get cartpole -w")]
pub struct Get {
    /// Names of jobs; all when there are none
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Jobs of all namespaces
    #[arg(short = 'A', long, conflicts_with = "names")]
    all_namespaces: bool,
    /// Only jobs whose labels match, as team=rl,tier!=test
    #[arg(short = 'l', long, conflicts_with = "names")]
    selector: Option<String>,
    /// Go on with every change
    #[arg(short, long)]
    watch: bool,
    /// Another form than the table
    #[arg(short, long)]
    output: Option<Format>,
    /// Leave out the names of the columns
    #[arg(long)]
    no_headers: bool,
}

impl Get {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        if self.watch {
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
                Err(error) if error.is_not_found() => {
                    report(&error.into());
                    code = ExitCode::FAILURE;
                }
                Err(error) => return Err(error.into()),
            }
        }
        match self.output {
            Some(Format::Json) => output::json(out, &self.objects(found))?,
            Some(Format::Yaml) => output::yaml(out, &self.objects(found))?,
            Some(Format::Name) => {
                for job in &found {
                    writeln!(out, "{}", title(&job.object))?;
                }
            }
            None | Some(Format::Wide) if found.is_empty() && self.names.is_empty() => {
                eprintln!("{}", self.nothing(&cluster));
            }
            None | Some(Format::Wide) if found.is_empty() => {}
            None | Some(Format::Wide) => {
                let now = Timestamp::now();
                let rows: Vec<_> = found
                    .iter()
                    .map(|job| self.cells(JobRow::new(job, now)))
                    .collect();
                out.write_all(self.table().render(&rows).as_bytes())?;
            }
        }
        Ok(code)
    }

    async fn follow(self, cluster: &Cluster, out: &mut impl Write) -> Result<ExitCode> {
        let mut query = self.query();
        let (found, version) = match self.names.as_slice() {
            [] => {
                let list = jobs(cluster, &query).await?;
                (list.jobs, list.resource_version)
            }
            [name] => {
                let job = job(cluster, name).await?;
                query.name = Some(name.clone());
                let version = job.metadata.resource_version.clone();
                (vec![job], version.unwrap_or_default())
            }
            _ => bail!("watch is only supported on one job or all of them"),
        };
        if found.is_empty() && matches!(self.output, None | Some(Format::Wide)) {
            eprintln!("{}", self.nothing(cluster));
        }
        let mut screen = Screen {
            table: self.table(),
            shown: HashMap::new(),
        };
        self.show(&mut screen, &found, out)?;
        let events = watch_jobs(cluster, &query, &version);
        let mut events = events.take_until(Box::pin(output::closed()));
        while let Some(event) = events.next().await {
            match event? {
                JobEvent::Applied(job) => self.show(&mut screen, &[job], out)?,
                JobEvent::Deleted(job) => {
                    screen.shown.remove(&key(&job));
                    self.show(&mut screen, std::slice::from_ref(&job), out)?;
                    screen.shown.remove(&key(&job));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn show(&self, screen: &mut Screen, jobs: &[Job], out: &mut impl Write) -> Result<()> {
        let mut rows = Vec::new();
        for job in jobs {
            match self.output {
                Some(Format::Json) => output::json(out, &presentable(job.object.clone()))?,
                Some(Format::Yaml) => {
                    writeln!(out, "---")?;
                    output::yaml(out, &presentable(job.object.clone()))?;
                }
                Some(Format::Name) => writeln!(out, "{}", title(&job.object))?,
                None | Some(Format::Wide) => {
                    let row = JobRow::new(job, Timestamp::now());
                    let old = screen.shown.insert(key(job), row.clone());
                    if !old.is_some_and(|old| old.same_but_age(&row)) {
                        rows.push(self.cells(row));
                    }
                }
            }
        }
        if !rows.is_empty() {
            out.write_all(screen.table.render(&rows).as_bytes())?;
        }
        Ok(out.flush()?)
    }

    fn query(&self) -> JobQuery {
        JobQuery {
            all_namespaces: self.all_namespaces,
            selector: self.selector.clone(),
            name: None,
        }
    }

    fn wide(&self) -> bool {
        self.output == Some(Format::Wide)
    }

    fn table(&self) -> Table {
        let headers = JobRow::headers(self.all_namespaces, self.wide());
        Table::new(&headers, !self.no_headers)
    }

    fn cells(&self, row: JobRow) -> Vec<String> {
        row.cells(self.all_namespaces, self.wide())
    }

    fn nothing(&self, cluster: &Cluster) -> String {
        if self.all_namespaces {
            "No resources found".to_owned()
        } else {
            let namespace = &cluster.namespace().name;
            format!("No resources found in {namespace} namespace.")
        }
    }

    /// One job that was asked for by name is shown alone.
    fn objects(&self, found: Vec<Job>) -> serde_json::Value {
        let mut objects: Vec<_> = found.into_iter().map(|job| job.object).collect();
        match objects.pop() {
            Some(object) if self.names.len() == 1 => presentable(object),
            last => {
                objects.extend(last);
                output::list(objects)
            }
        }
    }
}

/// What a watch has shown.
struct Screen {
    table: Table,
    shown: HashMap<(String, String), JobRow>,
}

fn key(job: &Job) -> (String, String) {
    (job.namespace().to_owned(), job.name().to_owned())
}
