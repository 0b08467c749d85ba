//! `kubectl di pause`, `start` and `status`: the life-cycle handles of a job's replicas.

use std::{io::Write, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Args;
use di_client::{Called, DryRun, Ended, Handle, call_replicas, job};
use serde_json::{Value, json};

use crate::{
    args::limit,
    dry_run::DryRunFlag,
    format::{self, Format, ObjectFormat, is_table},
    globals::Globals,
    names::job_name,
    output::list_whole,
    rows::or_none,
    table::Table,
};

/// Have the replicas of a job stop working, and stay.
///
/// Pods, memory and connections are kept, so start goes on at once and nothing is lost; suspend frees the pods instead. Calls the life-cycle
/// handles of every replica, which di-worker has, by the API server's proxy: that takes the right to create pods/proxy. Ends once each
/// replica has finished the step that it was at, with an error if some could not be told. A dry run of the client calls no replica, one of the
/// server asks each how it is.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Have a job stand still
  kubectl di pause cartpole

  # The same, where a step takes long
  kubectl di pause cartpole --timeout=5m

  # See who would be paused, and whether each can be reached
  kubectl di pause cartpole --dry-run=server")]
pub struct Pause {
    #[command(flatten)]
    change: Change,
}

/// Have the paused replicas of a job go on.
///
/// For a job that was suspended see resume. Takes the right to create pods/proxy.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Have a job go on
  kubectl di start cartpole

  # Give up on a replica sooner
  kubectl di start cartpole --timeout=5s")]
pub struct Start {
    #[command(flatten)]
    change: Change,
}

/// Show how far each replica of a job says it is.
///
/// Whether it runs, is paused, or has ended: completed, or by an error; and its counts of steps, samples and batches, which are gone with it once
/// it has ended. Takes the right to get pods/proxy.
///
/// As json or yaml, each of the items has name, role and index, and what the replica tells: status, running, exiting, polls, samples, batches and
/// stats; of one that has ended only status, completed or error; and a message where it has failed, or could not be asked.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Every replica
  kubectl di status cartpole

  # With what else they tell, as losses and returns
  kubectl di status cartpole -o wide

  # For scripts
  kubectl di status cartpole -o json")]
pub struct Status {
    #[command(flatten)]
    target: Target,
    /// Another form than the table: wide, json, yaml, name, jsonpath=…, jsonpath-as-json=…, jsonpath-file=…, custom-columns=… or custom-columns-file=…
    #[arg(short, long)]
    output: Option<Format>,
    /// Leave out the names of the columns
    #[arg(long)]
    no_headers: bool,
}

#[derive(Debug, Args)]
struct Target {
    /// Name of the job
    #[arg(value_parser = job_name)]
    name: String,
    /// How long to wait for the answer of a replica; 0 waits without limit
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = limit)]
    timeout: Duration,
}

#[derive(Debug, Args)]
struct Change {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    dry_run: DryRunFlag,
    /// Show what the replicas tell instead, as status does: json, yaml, name, jsonpath=…, jsonpath-as-json=… or jsonpath-file=…
    #[arg(short, long)]
    output: Option<ObjectFormat>,
}

impl Pause {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        self.change
            .make(Handle::Pause, "paused", globals, out)
            .await
    }
}

impl Start {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        self.change
            .make(Handle::Start, "running", globals, out)
            .await
    }
}

impl Status {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let called = self.target.call(Handle::Status, DryRun::None, globals);
        let called = called.await?;
        match &self.output {
            Some(format) if !is_table(Some(format)) => {
                show(&called, format, !self.no_headers, out)?;
            }
            format => {
                let is_wide = matches!(format, Some(Format::Wide));
                let mut headers = HEADERS.to_vec();
                if is_wide {
                    headers.push("STATS");
                }
                let rows: Vec<_> = called.iter().map(|one| cells(one, is_wide)).collect();
                let mut table = Table::new(&headers, !self.no_headers);
                out.write_all(table.render(&rows).as_bytes())?;
            }
        }
        out.flush()?;
        Ok(complain(&called))
    }
}

impl Change {
    /// Calls the replicas, and tells of each that it is `done` by now.
    async fn make(
        &self,
        handle: Handle,
        done: &str,
        globals: &Globals,
        out: &mut impl Write,
    ) -> Result<ExitCode> {
        let dry_run = self.dry_run.get();
        let mut called = self.target.call(handle, dry_run, globals).await?;
        if !self.dry_run.is_real() {
            // As it would be.
            for life in called.iter_mut().filter_map(|one| one.life.as_mut()) {
                done.clone_into(&mut life.status);
                life.running = handle == Handle::Start;
            }
        }
        let is_done = |one: &&Called| one.message.is_none();
        match &self.output {
            Some(ObjectFormat(Format::Name)) => names(called.iter().filter(is_done), out)?,
            Some(ObjectFormat(format)) => show(&called, format, true, out)?,
            None => {
                for one in called.iter().filter(is_done) {
                    let done = one.life.as_ref().map_or(done, |life| &life.status);
                    writeln!(out, "pod/{} {done}{}", one.name, self.dry_run.suffix())?;
                }
            }
        }
        out.flush()?;
        Ok(complain(&called))
    }
}

impl Target {
    async fn call(
        &self,
        handle: Handle,
        dry_run: DryRun,
        globals: &Globals,
    ) -> Result<Vec<Called>> {
        let cluster = globals.connect().await?;
        let job = job(&cluster, &self.name).await?;
        Ok(call_replicas(&cluster, &job, handle, dry_run, self.timeout).await?)
    }
}

fn show(called: &[Called], format: &Format, headers: bool, out: &mut impl Write) -> Result<()> {
    if matches!(format, Format::Name) {
        return names(called.iter(), out);
    }
    let items: Vec<Value> = called.iter().map(|one| json!(one)).collect();
    format::print(format, out, &list_whole(&items), &items, headers)
}

fn names<'a>(called: impl Iterator<Item = &'a Called>, out: &mut impl Write) -> Result<()> {
    for one in called {
        writeln!(out, "pod/{}", one.name)?;
    }
    Ok(())
}

/// Tells of those that could not be told anything.
fn complain(called: &[Called]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for one in called {
        if let Some(why) = &one.message {
            eprintln!("error: pod/{} {why}", one.name);
            code = ExitCode::FAILURE;
        }
    }
    code
}

const HEADERS: [&str; 7] = [
    "NAME", "ROLE", "INDEX", "STATUS", "POLLS", "SAMPLES", "BATCHES",
];

fn cells(one: &Called, is_wide: bool) -> Vec<String> {
    let life = one.life.as_ref();
    let status = life.map(|life| life.status.as_str());
    let status = status.or(one.ended.map(Ended::as_str));
    let mut cells = vec![
        one.name.clone(),
        one.role.to_string(),
        or_none(one.index),
        or_none(status),
        or_none(life.map(|life| life.polls)),
        or_none(life.map(|life| life.samples)),
        or_none(life.map(|life| life.batches)),
    ];
    if is_wide {
        let numbers = life.iter().flat_map(|life| &life.stats);
        let numbers: Vec<_> = numbers
            .map(|(name, value)| format!("{name}={value:.4}"))
            .collect();
        cells.push(or_none((!numbers.is_empty()).then(|| numbers.join(","))));
    }
    cells
}

#[cfg(test)]
mod tests {
    use di_api::Role;

    use super::*;

    #[test]
    fn what_has_ended_has_a_status_and_no_counts() {
        let called = |ended| Called {
            name: "j-learner-x7k2p".to_owned(),
            role: Role::Learner,
            index: Some(0),
            life: None,
            ended,
            message: None,
        };
        for (ended, status) in [
            (Some(Ended::Completed), "completed"),
            (Some(Ended::Error), "error"),
            (None, "<none>"),
        ] {
            let cells = cells(&called(ended), false);
            assert_eq!(cells[3..], [status, "<none>", "<none>", "<none>"]);
        }
    }
}
