use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use di_api::Role;
use di_client::{LogLine, LogOptions, Which, job, log_pods};
use futures::StreamExt;

use crate::{
    args::duration,
    globals::Globals,
    output::{self, report},
};

/// Show what a job's replicas have written; the coordinator's main container unless told otherwise.
///
/// Lines of several pods begin with the name of theirs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Follow the coordinator
  kubectl di logs cartpole -f

  # The last lines of every collector
  kubectl di logs cartpole --role collector --tail 20

  # Why a learner's container was restarted
  kubectl di logs cartpole --replica cartpole-learner-x7k2p --previous")]
pub struct Logs {
    /// Name of the job
    job: String,
    /// Replicas of this role
    #[arg(long, value_enum, default_value_t = RoleArg::Coordinator)]
    role: RoleArg,
    /// The replica of this name
    #[arg(long, value_name = "NAME", conflicts_with = "role")]
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
    /// The container's last run instead of this one
    #[arg(short, long)]
    previous: bool,
    /// Begin each line with its time
    #[arg(long)]
    timestamps: bool,
    /// Container instead of di-container
    #[arg(short, long)]
    container: Option<String>,
    /// How many pods may be followed at once
    #[arg(long, value_name = "N", default_value_t = 50)]
    max_log_requests: usize,
}

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
        let job = job(&cluster, &self.job).await?;
        let (which, options) = (self.which(), self.options());
        let pods = log_pods(&cluster, &job, &which).await?;
        ensure!(
            !self.follow || pods.len() <= self.max_log_requests,
            "{} pods are to be followed, but at most {} may be; use --max-log-requests to raise the limit",
            pods.len(),
            self.max_log_requests
        );
        // The last run of a container has no successors.
        let follow = self.follow && !self.previous && self.replica.is_none();
        let prefixed = pods.len() > 1 || (follow && which.may_be_several());
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
        let mut lines = lines.take_until(Box::pin(output::closed()));
        let mut code = ExitCode::SUCCESS;
        while let Some(line) = lines.next().await {
            match line {
                Ok(line) => print(out, &line, prefixed)?,
                Err(error) => {
                    report(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        Ok(code)
    }

    fn which(&self) -> Which {
        match (&self.replica, self.role) {
            (Some(name), _) => Which::Replica(name.clone()),
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
            follow: self.follow,
            tail: Some(self.tail).filter(|lines| *lines >= 0),
            since: self.since,
            previous: self.previous,
            timestamps: self.timestamps,
        }
    }
}

fn print(out: &mut impl Write, line: &LogLine, prefixed: bool) -> io::Result<()> {
    if prefixed {
        write!(out, "[{}] ", line.pod)?;
    }
    out.write_all(&line.bytes)?;
    if prefixed && !line.bytes.ends_with(b"\n") {
        writeln!(out)?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_pods_are_told_apart() {
        let line = |bytes: &[u8]| LogLine {
            pod: "p".to_owned(),
            bytes: bytes.to_vec(),
        };
        let mut out = Vec::new();
        print(&mut out, &line(b"a\n"), true).unwrap();
        print(&mut out, &line(b"no end"), true).unwrap();
        print(&mut out, &line(b"50%\r"), false).unwrap();
        assert_eq!(out, b"[p] a\n[p] no end\n50%\r");
    }
}
