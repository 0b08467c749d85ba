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
use di_api::Role;
use di_client::{Cluster, LogLine, LogOptions, LogStream, Which, job, log_pods};
use futures::StreamExt;
use jiff::Timestamp;

use crate::{
    args::duration,
    colour::Colours,
    globals::Globals,
    names::{JobAndReplica, replica_name},
    output::{self, report},
};

use files::Files;

/// Show what a job's replicas have written; the coordinator's main container unless told otherwise.
///
/// Lines of several pods begin with the name of theirs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Follow the coordinator
  kubectl di logs cartpole -f

  # The last lines of every collector
  kubectl di logs cartpole --role collector --tail 20

  # All that is said, and by whom
  kubectl di logs cartpole --role all --all-containers -f

  # All that is there to read, in a file for each container
  kubectl di logs cartpole --role all --all-containers --out-dir cartpole-logs

  # Why a learner's container was restarted
  kubectl di logs cartpole/learner-x7k2p --previous")]
#[allow(clippy::struct_excessive_bools)] // flags
pub struct Logs {
    /// Name of the job, or of the job and one of its replicas: NAME/REPLICA
    #[arg(value_name = "NAME[/REPLICA]")]
    target: JobAndReplica,
    /// Replicas of this role
    #[arg(long, value_enum, default_value_t = RoleArg::Coordinator)]
    role: RoleArg,
    /// The replica of this name
    #[arg(long, value_name = "NAME", value_parser = replica_name, conflicts_with = "role")]
    replica: Option<String>,
    /// Go on with what is still to come, of replicas that come later too, until the job has ended
    #[arg(short, long)]
    follow: bool,
    /// Only so many last lines of each; -1 means all
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    tail: i64,
    /// Only what is younger, as 5m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    since: Option<Duration>,
    /// Only what came after a time, as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "since")]
    since_time: Option<Timestamp>,
    /// The container's last run instead of this one
    #[arg(short, long)]
    previous: bool,
    /// Begin each line with its time
    #[arg(long)]
    timestamps: bool,
    /// Container instead of di-container
    #[arg(short, long)]
    container: Option<String>,
    /// Every container, those that prepare the pod included
    #[arg(long, conflicts_with = "container")]
    all_containers: bool,
    /// Whether lines begin with the name of their pod; told by whether there are several, unless said
    #[arg(
        long,
        action = ArgAction::Set,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true
    )]
    prefix: Option<bool>,
    /// Only so many bytes of each; 0 means all
    #[arg(long, value_name = "N", default_value_t = 0)]
    limit_bytes: u32,
    /// Errors on the way count for nothing in the exit code
    #[arg(long)]
    ignore_errors: bool,
    /// Write to DIR/POD/CONTAINER.log instead, and tell of each file
    #[arg(long, value_name = "DIR", conflicts_with = "prefix")]
    out_dir: Option<PathBuf>,
    /// How many containers may be followed at once
    #[arg(long, value_name = "N", default_value_t = MOST)]
    max_log_requests: usize,
}

/// Logs that are followed at once, unless told otherwise.
const MOST: usize = 50;

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
        let job = job(&cluster, &self.target.job).await?;
        let (which, options) = (self.which(job.name()), self.options());
        // The last run of a container has no successors.
        let follow = self.follow && !self.previous;
        let may_come = follow && !matches!(which, Which::Replica(_));
        let pods = log_pods(&cluster, &job, &which, may_come).await?;
        if pods.is_empty() {
            eprintln!("Waiting for pods of {}...", job.title());
        }
        let count: usize = pods.iter().map(|pod| options.containers(pod).len()).sum();
        ensure!(
            !self.follow || count <= self.max_log_requests,
            "{count} containers are to be followed, but at most {} may be; use --max-log-requests to raise the limit",
            self.max_log_requests
        );
        let several = count > 1 || (follow && which.may_be_several());
        let sink = match &self.out_dir {
            Some(folder) => Sink::Files(Files::new(folder.clone())),
            None => Sink::Lines(Prefix {
                wanted: self.prefix.unwrap_or(several),
                containers: self.all_containers,
                colours: Colours::of_stdout(),
                seen: HashMap::new(),
            }),
        };
        let lines = if follow {
            di_client::follow(
                &cluster,
                &job,
                &which,
                pods,
                &options,
                self.max_log_requests,
            )
        } else {
            di_client::logs(&cluster, job.namespace(), &pods, &options)
        };
        let printed = tokio::select! {
            printed = print(lines, sink, out) => printed?,
            // As kubectl's requests end.
            () = cluster.limit(), if follow => bail!("context deadline exceeded"),
        };
        Ok(match printed {
            0 => ExitCode::SUCCESS,
            _ if self.ignore_errors => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }

    fn which(&self, job: &str) -> Which {
        let named = self.replica.as_ref().or(self.target.replica.as_ref());
        match (named, self.role) {
            // The job's name may be left out of it.
            (Some(name), _) if name.starts_with(&format!("{job}-")) => Which::Replica(name.clone()),
            (Some(name), _) => Which::Replica(format!("{job}-{name}")),
            (None, RoleArg::All) => Which::All,
            (None, RoleArg::Coordinator) => Which::Role(Role::Coordinator),
            (None, RoleArg::Collector) => Which::Role(Role::Collector),
            (None, RoleArg::Learner) => Which::Role(Role::Learner),
            (None, RoleArg::Aggregator) => Which::Role(Role::Aggregator),
            (None, RoleArg::DdpLearner) => Which::Role(Role::DdpLearner),
        }
    }

    fn options(&self) -> LogOptions {
        LogOptions {
            container: self.container.clone(),
            all_containers: self.all_containers,
            follow: self.follow,
            tail: Some(self.tail).filter(|lines| *lines >= 0),
            // As kubectl: no time at all is no limit.
            since: self.since.filter(|since| !since.is_zero()),
            since_time: self.since_time,
            previous: self.previous,
            timestamps: self.timestamps,
            whole_lines: self.prefix == Some(true),
            limit_bytes: Some(self.limit_bytes.into()).filter(|bytes| *bytes > 0),
        }
    }
}

/// Prints what a job's coordinator says until the job has ended.
pub async fn follow_coordinator(cluster: &Cluster, name: &str, out: &mut impl Write) -> Result<()> {
    let job = job(cluster, name).await?;
    let (which, options) = (
        Which::Role(Role::Coordinator),
        LogOptions {
            follow: true,
            ..LogOptions::default()
        },
    );
    let pods = log_pods(cluster, &job, &which, true).await?;
    let lines = di_client::follow(cluster, &job, &which, pods, &options, MOST);
    let sink = Sink::Lines(Prefix {
        wanted: false,
        containers: false,
        colours: Colours::none(),
        seen: HashMap::new(),
    });
    print(lines, sink, out).await.map(drop)
}

/// Tells of errors on the way, and returns how many there were.
async fn print(lines: LogStream, mut sink: Sink, out: &mut impl Write) -> Result<usize> {
    let mut lines = lines.take_until(Box::pin(output::closed()));
    let mut errors = 0;
    while let Some(line) = lines.next().await {
        match line {
            Ok(line) => sink.take(out, &line)?,
            Err(error) => {
                report(&error.into());
                errors += 1;
            }
        }
    }
    Ok(errors)
}

fn time(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| "expected a time as 2026-01-31T12:00:00Z".to_owned())
}

/// Where lines go.
enum Sink {
    Lines(Prefix),
    Files(Files),
}

impl Sink {
    fn take(&mut self, out: &mut impl Write, line: &LogLine) -> Result<()> {
        match self {
            Self::Lines(prefix) => Ok(prefix.print(out, line)?),
            Self::Files(files) => files.take(out, line),
        }
    }
}

/// What lines of several containers begin with.
struct Prefix {
    wanted: bool,
    /// Whether the container is named, too.
    containers: bool,
    colours: Colours,
    /// Each speaker keeps its colour.
    seen: HashMap<String, usize>,
}

impl Prefix {
    fn print(&mut self, out: &mut impl Write, line: &LogLine) -> io::Result<()> {
        if self.wanted {
            let speaker = if self.containers {
                format!("[{}/{}]", line.pod, line.container)
            } else {
                format!("[{}]", line.pod)
            };
            let next = self.seen.len();
            let number = *self.seen.entry(speaker.clone()).or_insert(next);
            write!(out, "{} ", self.colours.vary(&speaker, number))?;
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
    fn since_no_time_at_all_means_all() {
        let since = |time: &str| {
            let command = Logs::augment_args(Command::new("logs"));
            let words = ["logs", "j", "--since", time];
            let matches = command.try_get_matches_from(words).unwrap();
            Logs::from_arg_matches(&matches).unwrap().options().since
        };
        assert_eq!(since("0s"), None);
        assert_eq!(since("5m"), Some(Duration::from_secs(300)));
    }

    #[test]
    fn lines_of_several_containers_are_told_apart() {
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
            prefix.print(&mut out, &line(bytes)).unwrap();
            out
        };
        assert_eq!(printed(true, false, b"a\n"), b"[p] a\n");
        assert_eq!(printed(true, true, b"no end"), b"[p/c] no end\n");
        assert_eq!(printed(false, true, b"50%\r"), b"50%\r");
    }
}
