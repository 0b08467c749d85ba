use std::path::PathBuf;

use super::{
    checkpoint::CheckpointArgs, goal::GoalArgs, learning::LearningArgs, sampling::SamplingArgs,
};

/// Flags of the commands that train in one process.
#[derive(Debug, clap::Args)]
pub struct StandaloneArgs {
    #[command(flatten)]
    pub goal: GoalArgs,
    /// Storage of the checkpoints: a folder or s3://BUCKET/PREFIX. Without it there are none, and
    /// each start trains from scratch
    #[arg(long, value_name = "FOLDER|URL")]
    pub storage: Option<PathBuf>,
    #[command(flatten)]
    pub keep: CheckpointArgs,
    #[command(flatten)]
    pub learning: LearningArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
}
