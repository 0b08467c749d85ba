use std::time::Duration;

use di_worker_lib::checkpoint::CheckpointPolicy;

use super::duration::parse_duration;

/// Flags of the checkpoints.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckpointArgs {
    /// Minimum time between two checkpoints; an interrupted training resumes from the newest
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    save_every: Duration,
    /// Number of newest checkpoints to keep, 1 to 65535
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    keep_checkpoints: u16,
    /// Ignore and remove existing checkpoints, and train from scratch
    #[arg(long)]
    fresh: bool,
}

impl CheckpointArgs {
    /// The checkpoint policy of the flags.
    pub fn to_policy(&self) -> CheckpointPolicy {
        CheckpointPolicy {
            every: self.save_every,
            latest: usize::from(self.keep_checkpoints),
            fresh: self.fresh,
        }
    }
}
