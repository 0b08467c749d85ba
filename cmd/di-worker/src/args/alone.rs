use std::path::PathBuf;

use di_runtime::{game::Game, training::Goal};

use super::{KeepArgs, LearningArgs, PaceArgs, SamplingArgs};

/// How a process trains that needs no other.
#[derive(Debug, clap::Args)]
pub struct AloneArgs {
    /// Where checkpoints are, a folder or s3://BUCKET/PREFIX: without it there are none, and each start begins anew
    #[arg(long, value_name = "FOLDER|URL")]
    pub storage: Option<PathBuf>,
    #[command(flatten)]
    pub keep: KeepArgs,
    #[command(flatten)]
    pub pace: PaceArgs,
    #[command(flatten)]
    pub learning: LearningArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
}

impl AloneArgs {
    /// What to train for.
    pub fn goal(&self, game: Game, seed: u64) -> Goal {
        Goal {
            seed,
            pace: self.pace.pace,
            ..Goal::of(game)
        }
    }
}
