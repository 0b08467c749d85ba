use std::path::PathBuf;

use super::{GoalArgs, CheckpointArgs, LearningArgs, SamplingArgs};

/// How a process trains that needs no other.
#[derive(Debug, clap::Args)]
pub struct StandaloneArgs {
    #[command(flatten)]
    pub goal: GoalArgs,
    /// Where checkpoints are, a folder or s3://BUCKET/PREFIX: without it there are none, and each start begins anew
    #[arg(long, value_name = "FOLDER|URL")]
    pub storage: Option<PathBuf>,
    #[command(flatten)]
    pub keep: CheckpointArgs,
    #[command(flatten)]
    pub learning: LearningArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
}
