//! The command line.

mod checkpoint;
mod configs;
mod duration;
mod goal;
mod learning;
mod sampling;

use std::{path::PathBuf, time::Duration};

use clap::{CommandFactory, Parser, Subcommand, error::ErrorKind};
use di_worker_lib::{
    coordinator::{Options, replica_table::ReplicaTimeouts},
    protocol::server::TASK_LIMIT,
};

use checkpoint::CheckpointArgs;
use configs::ConfigArgs;
use duration::parse_duration;
use goal::GoalArgs;
use learning::LearningArgs;
pub use sampling::SamplingArgs;

/// Trains in Gymnasium's CartPole-v1 with a coordinator, collectors and learners, to demonstrate DI
/// Orchestrator
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// Parses the command line; exits on an error.
    pub fn parse_or_exit() -> Self {
        let read = Self::try_parse().and_then(Self::validated);
        read.unwrap_or_else(|error| error.exit())
    }

    /// Checks combinations of flags.
    fn validated(self) -> Result<Self, clap::Error> {
        let checked = match &self.command {
            Command::Coordinator(args) => args.goal.check_frames(),
            Command::Collector { sampling, .. }
            | Command::Serial {
                alone: StandaloneArgs { sampling, .. },
                ..
            }
            | Command::Trial {
                alone: StandaloneArgs { sampling, .. },
                ..
            } => sampling
                .to_sampling()
                .check()
                .map_err(|error| error.to_string()),
            _ => Ok(()),
        };
        let to_error = |reason| Self::command().error(ErrorKind::ValueValidation, reason);
        checked.map_err(to_error)?;
        Ok(self)
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Request replicas, hand out tasks, and end when the target is reached. Exit codes: 0 solved,
    /// or ended by an exit call;
    /// 1 not solved or rejected; 2 invalid setup (storage, environment, flags); 143 terminated by a
    /// signal
    Coordinator(CoordinatorArgs),
    /// Sample frames with the current model and store them. Exit codes: 0 ended by an exit call;
    /// 143 terminated by a signal
    Collector {
        #[command(flatten)]
        storage: StorageArgs,
        #[command(flatten)]
        sampling: SamplingArgs,
    },
    /// Train the model on stored frames; in a learner group of several GPUs, as one or more ranks.
    /// Exit codes: 0 ended
    /// by an exit call; 1 another rank was lost; 143 terminated by a signal
    Learner(LearnerArgs),
    /// Forward tasks to the ranks of a learner group. Exit codes: 0 ended by an exit call; 143
    /// terminated by a signal
    Aggregator,
    /// Train in one process. Exit codes: 0 solved; 1 not solved; 2 invalid setup; 143 terminated by
    /// a signal
    Serial {
        /// Seed of all randomness; the result also depends on the number of environments
        #[arg(long, default_value_t = 0)]
        seed: u64,
        #[command(flatten)]
        alone: StandaloneArgs,
    },
    /// Train in one process with one seed of a sweep, and report the result to the sweep's
    /// coordinator until ended.
    /// Exit codes: 0 the training has ended; 143 terminated before that
    Trial {
        /// Seed of all randomness; the result also depends on the number of environments
        #[arg(long)]
        seed: u64,
        #[command(flatten)]
        alone: StandaloneArgs,
    },
    /// Wait for the reports of all trials of a sweep. Exit codes: 0 all solved, or ended by an exit
    /// call; 1 a trial
    /// was not solved; 143 terminated by a signal
    Sweep {
        /// Number of trials, each with another seed
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
        trials: u16,
    },
    /// Do nothing until `release` sets the exit code; for tests of the orchestrator
    Hold {
        /// Memory to allocate, in MiB
        #[arg(long, value_name = "MIB", default_value_t = 0)]
        memory: u16,
        /// Number of log bursts before the end, 15 s apart, of 120,000 numbered lines: more than
        /// 10 MiB, after which a kubelet rotates a log by default
        #[arg(long, value_name = "N", default_value_t = 0)]
        log_bursts: u16,
    },
    /// End the `hold` process of the same pod
    Release {
        /// Exit code of the `hold` process
        code: u8,
    },
    /// Print the environment variables that the orchestrator sets
    Env,
    /// Print the size of the terminal, and again after each change, until interrupted
    Terminal,
    /// GET http URLs (timeout 3s each) and print status and body; exit code 1 unless all return 2xx
    Probe {
        /// URLs to get
        #[arg(required = true, value_name = "URL")]
        urls: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
pub struct StorageArgs {
    /// Folder that all pods of the job share, on a volume
    #[arg(long, value_name = "FOLDER", default_value = "/storage")]
    pub storage: PathBuf,
}

/// Flags of the commands that train in one process.
#[derive(Debug, clap::Args)]
pub struct StandaloneArgs {
    #[command(flatten)]
    pub goal: GoalArgs,
    /// Folder of the checkpoints. Without it there are none, and each start trains from scratch
    #[arg(long, value_name = "FOLDER")]
    pub storage: Option<PathBuf>,
    #[command(flatten)]
    pub keep: CheckpointArgs,
    #[command(flatten)]
    pub learning: LearningArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
}

#[derive(Debug, clap::Args)]
pub struct LearnerArgs {
    #[command(flatten)]
    pub storage: StorageArgs,
    /// How long the ranks of a learner group wait for each other at the start
    #[arg(long, default_value = "5m", value_parser = parse_duration)]
    pub rendezvous_timeout: Duration,
    /// How long a rank may be silent during a task before it counts as lost
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub rank_timeout: Duration,
    #[command(flatten)]
    pub learning: LearningArgs,
}

#[derive(Debug, clap::Args)]
pub struct CoordinatorArgs {
    /// Collectors to request from the replica endpoint
    #[arg(long, default_value_t = 2)]
    collectors: u32,
    /// Learners to request; one trains at a time, the others are spares
    #[arg(long, default_value_t = 1)]
    learners: u32,
    /// Request no replicas and use those that the job declares (as with 0 collectors and 0
    /// learners)
    #[arg(long)]
    declared: bool,
    #[command(flatten)]
    pub storage: StorageArgs,
    #[command(flatten)]
    goal: GoalArgs,
    /// Seed of all randomness; the result does not depend on the number of collectors
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Time limit of the training since each start. After it the exit code is 1, and checkpoints
    /// are kept
    #[arg(long, default_value = "1h", value_parser = parse_duration)]
    timeout: Duration,
    /// Timeout of one task, at most 1h; a replica that exceeds it twice in a row is replaced
    #[arg(long, default_value = "2m", value_parser = parse_task_timeout)]
    task_timeout: Duration,
    /// How long a new replica may take to answer, including scheduling and image pull, before it is
    /// replaced
    #[arg(long, default_value = "10m", value_parser = parse_duration)]
    start_timeout: Duration,
    /// How long to retry a replica endpoint that does not answer or cannot serve
    #[arg(long, default_value = "5m", value_parser = parse_duration)]
    endpoint_timeout: Duration,
    #[command(flatten)]
    keep: CheckpointArgs,
    #[command(flatten)]
    configs: ConfigArgs,
}

impl From<CoordinatorArgs> for Options {
    fn from(args: CoordinatorArgs) -> Self {
        Self {
            goal: args.goal.to_goal(args.seed),
            collectors: args.collectors,
            learners: args.learners,
            declared: args.declared,
            endpoint_timeout: args.endpoint_timeout,
            timeout: args.timeout,
            patience: ReplicaTimeouts {
                task: args.task_timeout,
                first_answer: args.start_timeout,
                ..ReplicaTimeouts::default()
            },
            keep: args.keep.to_policy(),
            configs: args.configs.into_configs(),
        }
    }
}

/// Parses the timeout of a task.
fn parse_task_timeout(text: &str) -> Result<Duration, String> {
    parse_duration(text).and_then(|time| match time {
        time if time > TASK_LIMIT => Err("must be at most 1h".to_owned()),
        time => Ok(time),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn uneven_environment_splits_are_rejected_early() {
        let read = |line: &str| {
            let words = ["di-worker"].into_iter().chain(line.split_whitespace());
            Args::try_parse_from(words).and_then(Args::validated)
        };
        for command in ["collector", "serial", "trial --seed 0"] {
            assert!(read(command).is_ok());
            let error = read(&format!("{command} --num_envs_per_worker 5")).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let message = error.to_string();
            assert!(
                message
                    .contains("--num_envs_per_worker 5 cannot be divided by --worker_num_splits 2")
                    && message.contains("or --worker_num_splits 1"),
                "{message}"
            );
        }
    }
}
