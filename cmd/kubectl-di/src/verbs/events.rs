use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::{Args, ValueEnum};
use di_client::{Event, EventFilter, get_job, list_events, watch_events};
use futures::StreamExt;
use jiff::Timestamp;

use crate::{
    flags::{globals::Globals, names::parse_job_name},
    output::{
        self,
        format::{self, ObjectFormat},
        rows::last_seen,
        table::Table,
        without_managed_fields,
    },
};

/// List the events of jobs and their replicas, latest last.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # List the events of a job and its replicas
  kubectl di events cartpole

  # List the events of all jobs in the namespace, including deleted jobs
  kubectl di events

  # List recent events, then watch for new events
  kubectl di events cartpole -w

  # List only warnings
  kubectl di events cartpole --types=Warning")]
pub struct Events {
    /// Name of the job; without it, all jobs
    #[arg(value_name = "NAME", value_parser = parse_job_name)]
    job: Option<String>,
    /// If present, list the requested object(s) across all namespaces
    #[arg(short = 'A', long, conflicts_with = "job")]
    all_namespaces: bool,
    /// After listing the requested events, watch for more events
    #[arg(short, long)]
    watch: bool,
    /// Output only events of given types
    #[arg(long, value_enum, value_delimiter = ',', ignore_case = true)]
    types: Vec<EventType>,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<ObjectFormat>,
    /// When using the default output format, don't print headers
    #[arg(long)]
    no_headers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum EventType {
    Normal,
    Warning,
}

impl Events {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let mut scope = match &self.job {
            Some(name) => EventFilter::for_job(&get_job(&cluster, name).await?),
            None => EventFilter::for_all_jobs(&cluster, self.all_namespaces).await?,
        };
        let listed = list_events(&cluster, &mut scope).await?;
        let mut found = listed.events;
        found.retain(|event| self.has_wanted_type(event));
        if !self.watch {
            return self.print_events(out, found, &cluster.namespace().name);
        }
        let mut table = self.new_table();
        self.print_rows(&mut table, &found, out)?;
        let events = watch_events(&cluster, scope, &listed.resource_version, &found);
        let mut events = events.take_until(Box::pin(output::stdout_closed_or_timeout(&cluster)));
        while let Some(event) = events.next().await {
            let event = event?;
            if self.has_wanted_type(&event) {
                self.print_rows(&mut table, &[event], out)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print_events(
        &self,
        out: &mut impl Write,
        found: Vec<Event>,
        namespace: &str,
    ) -> Result<ExitCode> {
        if let Some(format) = self.output {
            let objects: Vec<_> = found.into_iter().map(|event| event.object).collect();
            let list = output::to_trimmed_list(objects.clone());
            format::print_objects(format, out, &list, &objects)?;
        } else if found.is_empty() {
            let for_job = self.job.iter().map(|job| format!(" for job {job:?}"));
            let in_namespace = if self.all_namespaces {
                String::new()
            } else {
                format!(" in {namespace} namespace")
            };
            eprintln!(
                "No events found{}{in_namespace}.",
                for_job.collect::<String>()
            );
        } else {
            self.print_rows(&mut self.new_table(), &found, out)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print_rows(&self, table: &mut Table, events: &[Event], out: &mut impl Write) -> Result<()> {
        let now = Timestamp::now();
        let mut rows = Vec::new();
        for event in events {
            if let Some(format) = self.output {
                let object = without_managed_fields(event.object.clone());
                format::print_watched(format, out, &object)?;
                continue;
            }
            let namespace = self.all_namespaces.then(|| event.namespace().to_owned());
            let cells = [
                last_seen(event, now),
                event.type_.clone(),
                event.reason.clone(),
                event.about.clone(),
                event.message.clone(),
            ];
            rows.push(namespace.into_iter().chain(cells).collect());
        }
        if !rows.is_empty() {
            out.write_all(table.render(&rows).as_bytes())?;
        }
        Ok(out.flush()?)
    }

    fn new_table(&self) -> Table {
        let headers = [
            "NAMESPACE",
            "LAST SEEN",
            "TYPE",
            "REASON",
            "OBJECT",
            "MESSAGE",
        ];
        let first = usize::from(!self.all_namespaces);
        Table::new(&headers[first..], !self.no_headers)
    }

    fn has_wanted_type(&self, event: &Event) -> bool {
        let mut types = self.types.iter();
        self.types.is_empty() || types.any(|wanted| format!("{wanted:?}") == event.type_)
    }
}
