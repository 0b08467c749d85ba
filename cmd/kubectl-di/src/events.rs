use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{Event, Whose, events, job, watch_events};
use futures::StreamExt;
use jiff::Timestamp;

use crate::{
    describe::seen,
    format::{self, Format, is_table},
    globals::Globals,
    names::job_name,
    output::{self, presentable},
    table::Table,
};

/// Show what was told of jobs and of their replicas, latest last.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # What happened to a job and its replicas
  kubectl di events cartpole

  # What happened to every job of the namespace, those included that are gone
  kubectl di events

  # What happens
  kubectl di events cartpole -w

  # What went wrong
  kubectl di events cartpole --types=Warning")]
pub struct Events {
    /// Name of the job; all jobs when there is none
    #[arg(value_name = "NAME", value_parser = job_name)]
    job: Option<String>,
    /// Jobs of all namespaces
    #[arg(short = 'A', long, conflicts_with = "job")]
    all_namespaces: bool,
    /// Go on with what happens
    #[arg(short, long)]
    watch: bool,
    /// Only events of these types: Normal, Warning
    #[arg(long, value_delimiter = ',', value_parser = event_type)]
    types: Vec<String>,
    /// Another form than the table: json, yaml, name, jsonpath=…, jsonpath-as-json=…, custom-columns=…
    #[arg(short, long)]
    output: Option<Format>,
    /// Leave out the names of the columns
    #[arg(long)]
    no_headers: bool,
}

fn event_type(text: &str) -> Result<String, String> {
    let known = ["Normal", "Warning"];
    let found = known.iter().find(|known| known.eq_ignore_ascii_case(text));
    found
        .map(ToString::to_string)
        .ok_or_else(|| "valid --types are: Normal, Warning".to_owned())
}

impl Events {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let mut whose = match &self.job {
            Some(name) => Whose::job(&job(&cluster, name).await?),
            None => Whose::any(&cluster, self.all_namespaces).await?,
        };
        let told = events(&cluster, &mut whose).await?;
        let mut found = told.events;
        found.retain(|event| self.is_wanted(event));
        if !self.watch {
            return self.print(out, found, &cluster.namespace().name);
        }
        let mut table = self.table();
        self.show(&mut table, &found, out)?;
        let events = watch_events(&cluster, whose, &told.resource_version, &found);
        let mut events = events.take_until(Box::pin(output::seen_enough(&cluster)));
        while let Some(event) = events.next().await {
            let event = event?;
            if self.is_wanted(&event) {
                self.show(&mut table, &[event], out)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, out: &mut impl Write, found: Vec<Event>, namespace: &str) -> Result<ExitCode> {
        if found.is_empty() && is_table(self.output.as_ref()) {
            let of = self.job.iter().map(|job| format!(" for job {job:?}"));
            let place = if self.all_namespaces {
                String::new()
            } else {
                format!(" in {namespace} namespace")
            };
            eprintln!("No events found{}{place}.", of.collect::<String>());
        } else if is_table(self.output.as_ref()) {
            self.show(&mut self.table(), &found, out)?;
        } else if let Some(format) = &self.output {
            let objects: Vec<_> = found.into_iter().map(|event| event.object).collect();
            let list = output::list(objects.clone());
            format::print(format, out, &list, &objects, !self.no_headers)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn show(&self, table: &mut Table, events: &[Event], out: &mut impl Write) -> Result<()> {
        let now = Timestamp::now();
        let mut rows = Vec::new();
        for event in events {
            match &self.output {
                Some(Format::Columns(columns)) => rows.push(columns.cells(&event.object)?),
                Some(format) if !is_table(Some(format)) => {
                    format::print_next(format, out, &presentable(event.object.clone()))?;
                }
                _ => {
                    let namespace = self.all_namespaces.then(|| event.namespace().to_owned());
                    let cells = [
                        seen(event, now),
                        event.type_.clone(),
                        event.reason.clone(),
                        event.about.clone(),
                        event.message.clone(),
                    ];
                    rows.push(namespace.into_iter().chain(cells).collect());
                }
            }
        }
        if !rows.is_empty() {
            out.write_all(table.render(&rows).as_bytes())?;
        }
        Ok(out.flush()?)
    }

    fn table(&self) -> Table {
        if let Some(Format::Columns(columns)) = &self.output {
            return columns.table(!self.no_headers);
        }
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

    fn is_wanted(&self, event: &Event) -> bool {
        self.types.is_empty() || self.types.contains(&event.type_)
    }
}
