use clap::ArgAction;
use di_worker_lib::sampler::sampling::Sampling;

/// Sampling flags. The names are Sample Factory's; `-` instead of `_` also works.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Rollout workers, 1 to 1024: each steps its environments, on its own thread unless in serial
    /// mode. Use one per core
    #[arg(
        long = "num_workers",
        alias = "num-workers",
        value_name = "N",
        default_value_t = 1
    )]
    workers: usize,
    /// Environments per rollout worker, 1 to 65536; a multiple of worker_num_splits. The samples
    /// depend on the total number
    /// of environments, so all collectors need the same
    #[arg(
        long = "num_envs_per_worker",
        alias = "num-envs-per-worker",
        value_name = "N",
        default_value_t = 2
    )]
    environments: usize,
    /// Splits of a rollout worker's environments, at least 1. With 2 (double buffering) one half
    /// waits for its actions while
    /// the other is stepped; with 1 the worker waits
    #[arg(
        long = "worker_num_splits",
        alias = "worker-num-splits",
        value_name = "N",
        default_value_t = 2
    )]
    splits: usize,
    /// Inference workers, 1 to 1024: each chooses the actions for some of the splits, on its own
    /// thread unless in serial mode
    #[arg(
        long = "policy_workers_per_policy",
        alias = "policy-workers-per-policy",
        value_name = "N",
        default_value_t = 1
    )]
    policy_workers: usize,
    /// Environment steps per trajectory buffer, 1 to 65536; a full buffer is sent to the batcher.
    /// The samples do not depend on it
    #[arg(long, value_name = "STEPS", default_value_t = 32)]
    rollout: usize,
    /// Let the environments of a split share one trajectory buffer, which the batcher forwards
    /// without a copy. Otherwise each
    /// environment has its own buffer
    #[arg(
        long = "batched_sampling",
        alias = "batched-sampling",
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        default_value_t = false,
        default_missing_value = "true"
    )]
    batched: bool,
    /// Run all workers and the batcher on one thread instead of one thread each
    /// [default: true with one worker of each kind]
    #[arg(
        long = "serial_mode",
        alias = "serial-mode",
        value_name = "BOOL",
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    serial: Option<bool>,
}

impl SamplingArgs {
    /// The sampling of the flags.
    pub const fn to_sampling(&self) -> Sampling {
        Sampling {
            num_workers: self.workers,
            num_envs_per_worker: self.environments,
            worker_num_splits: self.splits,
            policy_workers_per_policy: self.policy_workers,
            rollout: self.rollout,
            batched_sampling: self.batched,
            serial_mode: self.serial,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        sampling: SamplingArgs,
    }

    fn parse_line(line: &str) -> Sampling {
        let words = ["sampling"].into_iter().chain(line.split_whitespace());
        Alone::parse_from(words).sampling.to_sampling()
    }

    #[test]
    fn sampling_flags_default_to_sampling_default() {
        assert_eq!(parse_line(""), Sampling::default());
    }

    #[test]
    fn sampling_flags_accept_underscore_and_hyphen() {
        let sampling = Sampling {
            num_workers: 3,
            num_envs_per_worker: 8,
            worker_num_splits: 4,
            policy_workers_per_policy: 2,
            rollout: 16,
            batched_sampling: true,
            serial_mode: Some(false),
        };
        let line = "--num_workers 3 --num_envs_per_worker=8 --worker_num_splits=4 --policy_workers_per_policy=2 \
                    --rollout=16 --batched_sampling --serial_mode=false";
        assert_eq!(parse_line(line), sampling);
        assert_eq!(parse_line(&line.replace('_', "-")), sampling);
        assert_eq!(parse_line("--serial_mode").serial_mode, Some(true));
    }
}
