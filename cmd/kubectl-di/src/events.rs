use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{Event, events, job, watch_events};
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

/// Show what was told of a job and of its replicas, latest last.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # What happened to a job and its replicas
  kubectl di events cartpole

  # What happens
  kubectl di events cartpole -w

  # What went wrong
  kubectl di events cartpole --types=Warning")]
pub struct Events {
    /// Name of the job
    #[arg(value_parser = job_name)]
    job: String,
    /// Go on with what happens
    #[arg(short, long)]
    watch: bool,
    /// Only events of these types: Normal, Warning
    #[arg(long, value_delimiter = ',', value_parser = event_type)]
    types: Vec<String>,
    /// Another form than the table: json, yaml, name, jsonpath=…, custom-columns=…
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
        let job = job(&cluster, &self.job).await?;
        let told = events(&cluster, &job).await?;
        let mut found = told.events;
        found.retain(|event| self.is_wanted(event));
        if !self.watch {
            return self.print(out, found, &job);
        }
        let mut table = self.table();
        self.show(&mut table, &found, out)?;
        let events = watch_events(&cluster, &job, &told.resource_version);
        let mut events = events.take_until(Box::pin(output::closed()));
        while let Some(event) = events.next().await {
            let event = event?;
            if self.is_wanted(&event) {
                self.show(&mut table, &[event], out)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(
        &self,
        out: &mut impl Write,
        found: Vec<Event>,
        job: &di_client::Job,
    ) -> Result<ExitCode> {
        if found.is_empty() && is_table(self.output.as_ref()) {
            eprintln!(
                "No events found for job {:?} in {} namespace.",
                job.name(),
                job.namespace()
            );
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
        match &self.output {
            Some(format) if !is_table(Some(format)) => {
                for event in events {
                    let object = presentable(event.object.clone());
                    if matches!(format, Format::Yaml) {
                        writeln!(out, "---")?;
                    }
                    format::print(
                        format,
                        out,
                        &object,
                        std::slice::from_ref(&object),
                        !self.no_headers,
                    )?;
                }
            }
            _ => {
                let cells = |event: &Event| {
                    vec![
                        seen(event, now),
                        event.type_.clone(),
                        event.reason.clone(),
                        event.about.clone(),
                        event.message.clone(),
                    ]
                };
                let rows: Vec<_> = events.iter().map(cells).collect();
                if !rows.is_empty() {
                    out.write_all(table.render(&rows).as_bytes())?;
                }
            }
        }
        Ok(out.flush()?)
    }

    fn table(&self) -> Table {
        let headers = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"];
        Table::new(&headers, !self.no_headers)
    }

    fn is_wanted(&self, event: &Event) -> bool {
        self.types.is_empty() || self.types.contains(&event.type_)
    }
}
