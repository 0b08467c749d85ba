//! The command line.

mod standalone;
mod configs;
mod finite;
mod goal;
mod checkpoint;
mod learning;
mod sampling;

use std::{path::PathBuf, time::Duration};

use clap::{CommandFactory, Parser, Subcommand, error::ErrorKind};
use di_runtime::{coordinator::Options, replica_table::ReplicaTimeouts, server::TASK_LIMIT};

pub use standalone::StandaloneArgs;
use configs::ConfigArgs;
use goal::GoalArgs;
use checkpoint::CheckpointArgs;
use learning::LearningArgs;
pub use sampling::SamplingArgs;

/// Trains in environments of Gymnasium with a coordinator, collectors and learners, to show DI
/// Orchestrator at work.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// Reads the command line; ends the process where it makes no sense.
    pub fn parse_or_exit() -> Self {
        let read = Self::try_parse().and_then(Self::validated);
        read.unwrap_or_else(|error| error.exit())
    }

    /// What flags say together must make sense, too.
    fn validated(self) -> Result<Self, clap::Error> {
        let wrong = match &self.command {
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
        let refused = |reason| Self::command().error(ErrorKind::ValueValidation, reason);
        wrong.map_err(refused)?;
        Ok(self)
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Asks for replicas, has them run, hands out tasks, ends when the target is reached: 0 solved, or told to end
    /// by its handle, 1 not solved or refused, 2 wrongly set up (storage, environment, flags), 143 asked to end
    Coordinator(CoordinatorArgs),
    /// Plays with the current model and stores the frames: 0 told to end by its handle, 143 asked to end
    Collector {
        #[command(flatten)]
        storage: StorageArgs,
        #[command(flatten)]
        sampling: SamplingArgs,
    },
    /// Trains the model on stored frames; as ranks of a learner of several GPUs, where the orchestrator made it one: 0
    /// told to end by its handle, 1 another rank was lost, 143 asked to end
    Learner(LearnerArgs),
    /// Takes tasks on for the ranks of a learner of several GPUs: 0 told to end by its handle, 143 asked to end
    Aggregator,
    /// Trains alone, in one process: 0 solved, 1 not solved, 2 wrongly set up, 143 asked to end
    Serial {
        /// Decides everything random, with the number of environments
        #[arg(long, default_value_t = 0)]
        seed: u64,
        #[command(flatten)]
        alone: StandaloneArgs,
    },
    /// Trains alone with one seed of a sweep, and tells the sweep's coordinator how it ended until told
    /// to end; 143 when that was before the training's end
    Trial {
        /// Decides everything random, with the number of environments
        #[arg(long)]
        seed: u64,
        #[command(flatten)]
        alone: StandaloneArgs,
    },
    /// Waits until it was told of as many trials, each with another seed: 0 all solved, or told to end by its
    /// handle, 1 not all, 143 asked to end
    Sweep {
        /// How many
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
        trials: u16,
    },
    /// Does nothing until `release` says how to end, for tests of the orchestrator
    Hold {
        /// Memory to use meanwhile, in MiB
        #[arg(long, value_name = "MIB", default_value_t = 0)]
        memory: u16,
    },
    /// Tells the `hold` of the same pod to end
    Release {
        /// Exit code to end with
        code: u8,
    },
    /// Prints the environment that the orchestrator gives
    Env,
    /// Prints the size of the terminal, and again whenever it changes; until it is interrupted
    Terminal,
    /// GETs http URLs (3 s each), prints status and body; exits 1 unless all answer 2xx
    Probe {
        /// URLs to call
        #[arg(required = true, value_name = "URL")]
        urls: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
pub struct StorageArgs {
    /// What all pods of the job share: a folder, or s3://BUCKET/PREFIX, which AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID,
    /// AWS_SECRET_ACCESS_KEY, AWS_REGION and so on say how to get at
    #[arg(long, value_name = "FOLDER|URL", default_value = "/storage")]
    pub storage: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct LearnerArgs {
    #[command(flatten)]
    pub storage: StorageArgs,
    /// How long the ranks of a learner of several GPUs wait for each other at the start
    #[arg(long, default_value = "5m", value_parser = parse_duration)]
    pub meet_timeout: Duration,
    /// How long a rank may be silent in a task until it counts as lost
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub rank_timeout: Duration,
    #[command(flatten)]
    pub learning: LearningArgs,
}

#[derive(Debug, clap::Args)]
pub struct CoordinatorArgs {
    /// Collectors to ask the replica endpoint for
    #[arg(long, default_value_t = 2)]
    collectors: u32,
    /// Learners to ask for; one trains at a time, others stand by to take over
    #[arg(long, default_value_t = 1)]
    learners: u32,
    /// Ask for no replicas, use those that the job declares (as with 0 collectors and 0 learners)
    #[arg(long)]
    declared: bool,
    #[command(flatten)]
    pub storage: StorageArgs,
    #[command(flatten)]
    goal: GoalArgs,
    /// Decides everything random: a seed gives the same training with any number of collectors
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Longest time to train, from each start on; then 1, and checkpoints stay to go on from
    #[arg(long, default_value = "1h", value_parser = parse_duration)]
    timeout: Duration,
    /// Longest time for one task, at most 1h; a replica that takes longer twice is replaced
    #[arg(long, default_value = "2m", value_parser = parse_task_timeout)]
    task_timeout: Duration,
    /// How long a replica may take until it first answers, for its node and image may have to come; then it is replaced
    #[arg(long, default_value = "10m", value_parser = parse_duration)]
    start_timeout: Duration,
    /// How long to ask a replica endpoint that does not answer or cannot serve
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
            configs: args.configs.to_configs(),
        }
    }
}

/// Reads `500ms`, `90`, `90s`, `5m`, `1h`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let units = [
        ("ms", 1),
        ("s", 1000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("", 1000),
    ];
    let parsed = units.iter().find_map(|(unit, milliseconds)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*milliseconds)
    });
    parsed
        .map(Duration::from_millis)
        .ok_or_else(|| "not a duration like 500ms, 90s, 5m or 1h".to_owned())
}

/// Reads how long a task may take.
fn parse_task_timeout(text: &str) -> Result<Duration, String> {
    parse_duration(text).and_then(|time| match time {
        time if time > TASK_LIMIT => Err("no replica works on a task for more than 1h".to_owned()),
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

    #[test]
    fn duration_units_are_parsed() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("90s", 90_000),
            ("90", 90_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for text in ["", "s", "-1s", "1d", "1.5s", "99999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
