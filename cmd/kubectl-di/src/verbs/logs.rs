mod files;

use std::{
    collections::HashMap,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use clap::{ArgAction, Args, ValueEnum};
use di_api::{FailureRecord, Role};
use di_client::{
    Cluster, Error, Job, LogLine, LogOptions, LogSelection, LogStream, get_job, select_log_pods,
};
use futures::StreamExt;
use jiff::Timestamp;

use crate::{
    flags::{
        globals::Globals,
        names::{JobAndReplica, parse_replica_name},
        parsers::parse_duration,
    },
    output::{self, colour::Colours, failures::tail_lines, report_error},
};

use files::Files;

/// Print the logs of a job's replicas; by default of the coordinator's main container.
///
/// Lines from several pods are prefixed with the pod name. With -f, the log continues across lost
/// connections and log rotations; a warning is printed if lines may be missing. If the pods are
/// deleted, the last lines that the job has stored of a failure are printed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Stream the log of the coordinator
  kubectl di logs cartpole -f

  # Print the last lines of every collector
  kubectl di logs cartpole --role collector --tail 20

  # Stream all logs, prefixed with pod and container
  kubectl di logs cartpole --role all --all-containers -f

  # Write all logs to one file per container
  kubectl di logs cartpole --role all --all-containers --out-dir cartpole-logs

  # Print the log of a learner before its container was restarted
  kubectl di logs cartpole/learner-x7k2p --previous")]
#[allow(clippy::struct_excessive_bools)] // flags
pub struct Logs {
    /// Name of the job, or of the job and one of its replicas: NAME/REPLICA
    #[arg(value_name = "NAME[/REPLICA]")]
    target: JobAndReplica,
    /// Role of the replicas
    #[arg(long, value_enum, default_value_t = RoleArg::Coordinator)]
    role: RoleArg,
    /// Name of the replica
    #[arg(long, value_name = "NAME", value_parser = parse_replica_name, conflicts_with = "role")]
    replica: Option<String>,
    /// Specify if the logs should be streamed; includes replicas that are created later, until the
    /// job has ended
    #[arg(short, long)]
    follow: bool,
    /// Lines of recent log file to display. Defaults to -1, showing all log lines
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    tail: i64,
    /// Only return logs newer than a relative duration like 5s, 2m, or 3h. Defaults to all logs
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    since: Option<Duration>,
    /// Only return logs after a specific date (RFC3339). Defaults to all logs
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "since")]
    since_time: Option<Timestamp>,
    /// If true, print the logs for the previous instance of the container in a pod if it exists
    #[arg(short, long)]
    previous: bool,
    /// Include timestamps on each line in the log output
    #[arg(long)]
    timestamps: bool,
    /// Print the logs of this container. Defaults to di-container
    #[arg(short, long)]
    container: Option<String>,
    /// Get all containers' logs in the pod(s), including init containers
    #[arg(long, conflicts_with = "container")]
    all_containers: bool,
    /// Prefix each log line with the log source. Defaults to true if there are several sources
    #[arg(
        long,
        action = ArgAction::Set,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true
    )]
    prefix: Option<bool>,
    /// Write to DIR/POD/CONTAINER.log instead of stdout, and print the name of each file
    #[arg(long, value_name = "DIR", conflicts_with = "prefix")]
    out_dir: Option<PathBuf>,
    /// Specify maximum number of concurrent logs to follow
    #[arg(long, value_name = "N", default_value_t = MAX_LOG_REQUESTS)]
    max_log_requests: usize,
}

/// The default of --max-log-requests.
const MAX_LOG_REQUESTS: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RoleArg {
    Coordinator,
    Collector,
    Learner,
    Aggregator,
    DdpLearner,
    All,
}

impl Logs {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let job = get_job(&cluster, &self.target.job).await?;
        let (which, options) = (self.selected_replicas(job.name()), self.log_options());
        // The log of a previous instance is complete, so there is nothing to follow.
        let follow = self.follow && !self.previous;
        let allow_none = follow && !matches!(which, LogSelection::Replica(_));
        let pods = match select_log_pods(&cluster, &job, &which, allow_none).await {
            Err(error @ Error::Refused(_)) => match self.stored_failure(&job, &which) {
                Some(failure) => return print_stored_tail(failure, out),
                None => return Err(error.into()),
            },
            pods => pods?,
        };
        if pods.is_empty() {
            eprintln!("Waiting for pods of {}...", job.resource_name());
        }
        let count: usize = pods
            .iter()
            .map(|pod| options.selected_containers(pod).len())
            .sum();
        ensure!(
            !self.follow || count <= self.max_log_requests,
            "you are attempting to follow {count} log streams, but maximum allowed concurrency is {}, use --max-log-requests to increase the limit",
            self.max_log_requests
        );
        let several = count > 1 || (follow && which.may_match_several());
        let sink = match &self.out_dir {
            Some(folder) => Sink::Files(Files::new(folder.clone())),
            None => Sink::Lines(Prefix {
                wanted: self.prefix.unwrap_or(several),
                containers: self.all_containers,
                colours: Colours::for_stdout(),
                seen: HashMap::new(),
            }),
        };
        let lines = if follow {
            di_client::follow_logs(
                &cluster,
                &job,
                &which,
                pods,
                &options,
                self.max_log_requests,
            )
        } else {
            di_client::read_logs(&cluster, job.namespace(), &pods, &options)
        };
        let printed = tokio::select! {
            printed = print_lines(lines, sink, out) => printed?,
            // The same error as in kubectl.
            () = cluster.wait_request_timeout(), if follow => bail!("context deadline exceeded"),
        };
        Ok(match printed {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }

    fn selected_replicas(&self, job: &str) -> LogSelection {
        let named = self.replica.as_ref().or(self.target.replica.as_ref());
        match (named, self.role) {
            // The prefix with the name of the job is optional.
            (Some(name), _) if name.starts_with(&format!("{job}-")) => {
                LogSelection::Replica(name.clone())
            }
            (Some(name), _) => LogSelection::Replica(format!("{job}-{name}")),
            (None, RoleArg::All) => LogSelection::All,
            (None, RoleArg::Coordinator) => LogSelection::Role(Role::Coordinator),
            (None, RoleArg::Collector) => LogSelection::Role(Role::Collector),
            (None, RoleArg::Learner) => LogSelection::Role(Role::Learner),
            (None, RoleArg::Aggregator) => LogSelection::Role(Role::Aggregator),
            (None, RoleArg::DdpLearner) => LogSelection::Role(Role::DdpLearner),
        }
    }

    /// Returns the newest stored failure with log lines that the selection includes.
    fn stored_failure<'a>(
        &self,
        job: &'a Job,
        selection: &LogSelection,
    ) -> Option<&'a FailureRecord> {
        let container = self
            .container
            .as_deref()
            .unwrap_or(di_api::names::MAIN_CONTAINER);
        if container != di_api::names::MAIN_CONTAINER || self.previous {
            return None;
        }
        let mut failures = job.status.failures.iter();
        failures.find(|failure| {
            failure.tail.is_some()
                && match selection {
                    LogSelection::All => true,
                    LogSelection::Role(role) => failure.role == *role,
                    LogSelection::Replica(name) => failure.pod == *name,
                }
        })
    }

    fn log_options(&self) -> LogOptions {
        LogOptions {
            container: self.container.clone(),
            all_containers: self.all_containers,
            follow: self.follow,
            tail: Some(self.tail).filter(|lines| *lines >= 0),
            // As in kubectl, zero means no limit.
            since: self.since.filter(|since| !since.is_zero()),
            since_time: self.since_time,
            previous: self.previous,
            timestamps: self.timestamps,
            whole_lines: self.prefix == Some(true),
        }
    }
}

fn print_stored_tail(failure: &FailureRecord, out: &mut impl Write) -> Result<ExitCode> {
    eprintln!(
        "Pod {} is deleted. The job has stored these last lines of its container di-container:",
        failure.pod
    );
    for line in tail_lines(failure, usize::MAX) {
        writeln!(out, "{line}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the log of the coordinator of a job until the job has ended.
pub async fn follow_coordinator(cluster: &Cluster, name: &str, out: &mut impl Write) -> Result<()> {
    let job = get_job(cluster, name).await?;
    let (which, options) = (
        LogSelection::Role(Role::Coordinator),
        LogOptions {
            follow: true,
            ..LogOptions::default()
        },
    );
    let pods = select_log_pods(cluster, &job, &which, true).await?;
    let lines = di_client::follow_logs(cluster, &job, &which, pods, &options, MAX_LOG_REQUESTS);
    let sink = Sink::Lines(Prefix {
        wanted: false,
        containers: false,
        colours: Colours::none(),
        seen: HashMap::new(),
    });
    print_lines(lines, sink, out).await.map(drop)
}

/// Prints lines to the sink and errors to stderr; returns the number of errors.
async fn print_lines(lines: LogStream, mut sink: Sink, out: &mut impl Write) -> Result<usize> {
    let mut lines = lines.take_until(Box::pin(output::stdout_closed()));
    let mut errors = 0;
    while let Some(line) = lines.next().await {
        match line {
            Ok(line) => sink.write_line(out, &line)?,
            Err(error @ di_client::Error::MissingLines { .. }) => eprintln!("Warning: {error}"),
            Err(error) => {
                report_error(&error.into());
                errors += 1;
            }
        }
    }
    Ok(errors)
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| "expected a date such as 2026-01-31T12:00:00Z".to_owned())
}

/// The destination of log lines.
enum Sink {
    Lines(Prefix),
    Files(Files),
}

impl Sink {
    fn write_line(&mut self, out: &mut impl Write, line: &LogLine) -> Result<()> {
        match self {
            Self::Lines(prefix) => Ok(prefix.print_line(out, line)?),
            Self::Files(files) => files.write_line(out, line),
        }
    }
}

/// The prefix of lines, if there are several sources.
struct Prefix {
    wanted: bool,
    /// Whether the prefix includes the container.
    containers: bool,
    colours: Colours,
    /// The colour number of each source.
    seen: HashMap<String, usize>,
}

impl Prefix {
    fn print_line(&mut self, out: &mut impl Write, line: &LogLine) -> io::Result<()> {
        if self.wanted {
            let source = if self.containers {
                format!("[{}/{}]", line.pod, line.container)
            } else {
                format!("[{}]", line.pod)
            };
            let next = self.seen.len();
            let number = *self.seen.entry(source.clone()).or_insert(next);
            write!(out, "{} ", self.colours.paint_by_number(&source, number))?;
        }
        out.write_all(&line.bytes)?;
        if self.wanted && !line.bytes.ends_with(b"\n") {
            writeln!(out)?;
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    #[test]
    fn since_zero_means_no_limit() {
        let since = |time: &str| {
            let command = Logs::augment_args(Command::new("logs"));
            let words = ["logs", "j", "--since", time];
            let matches = command.try_get_matches_from(words).unwrap();
            Logs::from_arg_matches(&matches)
                .unwrap()
                .log_options()
                .since
        };
        assert_eq!(since("0s"), None);
        assert_eq!(since("5m"), Some(Duration::from_secs(300)));
    }

    #[test]
    fn lines_are_prefixed_with_pod_and_container() {
        let line = |bytes: &[u8]| LogLine {
            pod: "p".to_owned(),
            container: "c".to_owned(),
            bytes: bytes.to_vec(),
        };
        let printed = |wanted, containers, bytes: &[u8]| {
            let mut prefix = Prefix {
                wanted,
                containers,
                colours: Colours::none(),
                seen: HashMap::new(),
            };
            let mut out = Vec::new();
            prefix.print_line(&mut out, &line(bytes)).unwrap();
            out
        };
        assert_eq!(printed(true, false, b"a\n"), b"[p] a\n");
        assert_eq!(printed(true, true, b"no end"), b"[p/c] no end\n");
        assert_eq!(printed(false, true, b"50%\r"), b"50%\r");
    }
}
