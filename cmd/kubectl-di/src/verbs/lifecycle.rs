//! `kubectl di pause`, `start` and `status`: the life-cycle handles of a job's replicas.

use std::{io::Write, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Args;
use di_client::{DryRun, EndState, LifecycleRequest, ReplicaReply, call_replicas, get_job};
use serde_json::{Value, json};

use crate::{
    flags::{dry_run::DryRunFlag, globals::Globals, names::parse_job_name, parsers::parse_timeout},
    output::{
        format::{self, Format, ObjectFormat},
        rows::or_none,
        table::Table,
        to_list,
    },
};

/// Pause the replicas of a job; their pods keep running.
///
/// Pods, memory and connections are kept, so start continues immediately; suspend deletes the pods
/// instead. Calls the lifecycle handles of every replica (di-worker has them) through the proxy of
/// the API server, which requires permission to create pods/proxy. Returns when each replica has
/// finished its current step, and fails if a replica cannot be called. A client dry run calls no
/// replica; a server dry run gets the status of each.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Pause a job
  kubectl di pause cartpole

  # Pause a job with long steps
  kubectl di pause cartpole --timeout=5m

  # Show the replicas that would be paused, and check that each can be reached
  kubectl di pause cartpole --dry-run=server")]
pub struct Pause {
    #[command(flatten)]
    args: HandleArgs,
}

/// Start the paused replicas of a job.
///
/// For a suspended job, use resume. Requires permission to create pods/proxy.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Start a paused job
  kubectl di start cartpole

  # Use a shorter timeout for each replica
  kubectl di start cartpole --timeout=5s")]
pub struct Start {
    #[command(flatten)]
    args: HandleArgs,
}

/// Show the status and progress that each replica of a job reports.
///
/// The status is running, paused, completed or error; the progress is the number of steps, samples
/// and batches. Replicas that have ended report no numbers. Requires permission to get pods/proxy.
///
/// In json and yaml, each item has name, role and index, and the report of the replica: status,
/// running, exiting, polls, samples, batches and stats. A replica that has ended has only a status:
/// completed or error. A replica that failed or cannot be called has a message.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Show the status of every replica
  kubectl di status cartpole

  # Include their statistics, such as losses and returns
  kubectl di status cartpole -o wide

  # For scripts
  kubectl di status cartpole -o json")]
pub struct Status {
    #[command(flatten)]
    target: JobTarget,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Format>,
    /// When using the default output format, don't print headers
    #[arg(long)]
    no_headers: bool,
}

#[derive(Debug, Args)]
struct JobTarget {
    /// Name of the job
    #[arg(value_parser = parse_job_name)]
    name: String,
    /// The length of time to wait for the response of a replica, such as 30s. Zero means no limit
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_timeout)]
    timeout: Duration,
}

#[derive(Debug, Args)]
struct HandleArgs {
    #[command(flatten)]
    target: JobTarget,
    #[command(flatten)]
    dry_run: DryRunFlag,
    /// Output format of the replicas' status
    #[arg(short, long, value_enum)]
    output: Option<ObjectFormat>,
}

impl Pause {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        self.args
            .call_and_print(LifecycleRequest::Pause, "paused", globals, out)
            .await
    }
}

impl Start {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        self.args
            .call_and_print(LifecycleRequest::Start, "running", globals, out)
            .await
    }
}

impl Status {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let called = self
            .target
            .call_handle(LifecycleRequest::Status, DryRun::None, globals);
        let called = called.await?;
        if let Some(format) = self.output.and_then(Format::objects) {
            print_statuses(&called, format, out)?;
        } else {
            let is_wide = self.output == Some(Format::Wide);
            let mut headers = HEADERS.to_vec();
            if is_wide {
                headers.push("STATS");
            }
            let rows: Vec<_> = called
                .iter()
                .map(|one| status_cells(one, is_wide))
                .collect();
            let mut table = Table::new(&headers, !self.no_headers);
            out.write_all(table.render(&rows).as_bytes())?;
        }
        out.flush()?;
        Ok(report_failures(&called))
    }
}

impl HandleArgs {
    /// Calls the replicas, and prints the new status of each; `done` is the expected one.
    async fn call_and_print(
        &self,
        handle: LifecycleRequest,
        done: &str,
        globals: &Globals,
        out: &mut impl Write,
    ) -> Result<ExitCode> {
        let dry_run = self.dry_run.get();
        let mut called = self.target.call_handle(handle, dry_run, globals).await?;
        if !self.dry_run.is_real() {
            // A dry run prints the status after the call.
            for life in called.iter_mut().filter_map(|one| one.lifecycle.as_mut()) {
                done.clone_into(&mut life.status);
                life.running = handle == LifecycleRequest::Start;
            }
        }
        let is_done = |one: &&ReplicaReply| one.message.is_none();
        match self.output {
            Some(ObjectFormat::Name) => print_names(called.iter().filter(is_done), out)?,
            Some(format) => print_statuses(&called, format, out)?,
            None => {
                for one in called.iter().filter(is_done) {
                    let done = one.lifecycle.as_ref().map_or(done, |life| &life.status);
                    writeln!(
                        out,
                        "pod/{} {done}{}",
                        one.name,
                        self.dry_run.message_suffix()
                    )?;
                }
            }
        }
        out.flush()?;
        Ok(report_failures(&called))
    }
}

impl JobTarget {
    async fn call_handle(
        &self,
        handle: LifecycleRequest,
        dry_run: DryRun,
        globals: &Globals,
    ) -> Result<Vec<ReplicaReply>> {
        let cluster = globals.connect().await?;
        let job = get_job(&cluster, &self.name).await?;
        // See docs/decisions/0019.
        Ok(call_replicas(&cluster, &job, handle, dry_run, self.timeout).await?)
    }
}

fn print_statuses(
    called: &[ReplicaReply],
    format: ObjectFormat,
    out: &mut impl Write,
) -> Result<()> {
    if format == ObjectFormat::Name {
        return print_names(called.iter(), out);
    }
    let items: Vec<Value> = called.iter().map(|one| json!(one)).collect();
    format::print_objects(format, out, &to_list(&items), &items)
}

fn print_names<'a>(
    called: impl Iterator<Item = &'a ReplicaReply>,
    out: &mut impl Write,
) -> Result<()> {
    for one in called {
        writeln!(out, "pod/{}", one.name)?;
    }
    Ok(())
}

/// Prints an error for each replica that could not be called.
fn report_failures(called: &[ReplicaReply]) -> ExitCode {
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

fn status_cells(one: &ReplicaReply, is_wide: bool) -> Vec<String> {
    let life = one.lifecycle.as_ref();
    let status = life.map(|life| life.status.as_str());
    let status = status.or(one.ended.map(EndState::as_str));
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
    fn ended_replica_has_a_status_and_no_counts() {
        let called = |ended| ReplicaReply {
            name: "j-learner-x7k2p".to_owned(),
            role: Role::Learner,
            index: Some(0),
            lifecycle: None,
            ended,
            message: None,
        };
        for (ended, status) in [
            (Some(EndState::Completed), "completed"),
            (Some(EndState::Error), "error"),
            (None, "<none>"),
        ] {
            let cells = status_cells(&called(ended), false);
            assert_eq!(cells[3..], [status, "<none>", "<none>", "<none>"]);
        }
    }
}
