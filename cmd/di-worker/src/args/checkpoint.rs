use std::time::Duration;

use di_runtime::checkpoint::CheckpointPolicy;

use super::parse_duration;

/// When checkpoints are saved, and how many stay.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckpointArgs {
    /// Least time between two checkpoints, from which a training goes on that was interrupted
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    save_every: Duration,
    /// Checkpoints to keep, the newest
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    keep_checkpoints: u16,
    /// Begin anew at each start, and remove the checkpoints of the one before
    #[arg(long)]
    fresh: bool,
}

impl CheckpointArgs {
    /// What they say.
    pub fn to_policy(&self) -> CheckpointPolicy {
        CheckpointPolicy {
            every: self.save_every,
            latest: usize::from(self.keep_checkpoints),
            fresh: self.fresh,
        }
    }
}
