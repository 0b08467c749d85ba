//! The collector: loads the model, plays, stores the frames, reports where they are.

use rand::{SeedableRng, rngs::StdRng};
use serde::Deserialize;

use crate::{
    Error, Result,
    env::Environment,
    frames,
    model::Model,
    rollout::{Evaluation, collect, evaluate},
    storage::Storage,
    tasks::TaskWorker,
    wire::{CollectorReport, CollectorTask, Role, Work},
};

/// Most frames of one task; keeps memory small.
pub const MAX_FRAMES: usize = 1 << 20;
/// Most episodes of one task.
pub const MAX_EPISODES: usize = 10_000;

/// There is nothing to configure: a task says it all.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// Does collector tasks.
#[derive(Clone, Debug)]
pub struct Collector {
    environment: Environment,
    storage: Storage,
}

impl Collector {
    /// A collector that works on `storage`.
    pub const fn new(environment: Environment, storage: Storage) -> Self {
        Self {
            environment,
            storage,
        }
    }
}

impl TaskWorker for Collector {
    type Task = CollectorTask;
    type Report = CollectorReport;
    type Config = NoConfig;

    const ROLE: Role = Role::Collector;

    fn pod(&self) -> &str {
        &self.environment.pod
    }

    fn replica_index(&self) -> u64 {
        self.environment.replica_index
    }

    fn config(&self) -> NoConfig {
        NoConfig {}
    }

    fn configure(&mut self, _: NoConfig) -> Result<()> {
        Ok(())
    }

    fn work(&self, task: CollectorTask, fallback_seed: u64) -> Result<CollectorReport> {
        let game = task.game;
        let model = Model::load(&self.storage, &task.model_path, game, task.model_version)?;
        let seed = task.seed.unwrap_or(fallback_seed);
        let mut rng = StdRng::seed_from_u64(seed);
        let report = match task.work {
            Work::Collect { frames } if (1..=MAX_FRAMES).contains(&frames) => {
                let rollout = collect(&model.policy, frames, &mut rng);
                // The pod's name keeps apart what two collectors make of one task, when the first
                // was thought lost.
                let name = format!("{seed:016x}-{}.bin", self.environment.pod);
                let path = task.run.join(frames_folder(task.model_version)).join(name);
                let file = frames::encode(game, model.version, &rollout.trajectories);
                let bytes = self.storage.write(&path, &file)?;
                CollectorReport {
                    path: Some(path),
                    bytes,
                    ..summary(frames as u64, &rollout.returns)
                }
            }
            Work::Evaluate { episodes } if (1..=MAX_EPISODES).contains(&episodes) => {
                let Evaluation { returns, frames } = evaluate(&model.policy, episodes, &mut rng);
                summary(frames, &returns)
            }
            Work::Collect { .. } | Work::Evaluate { .. } => {
                let limits = format!(
                    "1 to {MAX_FRAMES} frames or 1 to {MAX_EPISODES} episodes can be asked for"
                );
                return Err(Error::BadTask(limits));
            }
        };
        let CollectorReport {
            frames,
            episodes,
            mean_return,
            ..
        } = report;
        match task.work {
            Work::Collect { .. } => tracing::info!(
                "collected {frames} frames with model {}: {episodes} episodes, mean return {mean_return:.1}",
                task.model_version
            ),
            Work::Evaluate { .. } => tracing::info!(
                "evaluated model {}: {episodes} episodes, mean return {mean_return:.1}",
                task.model_version
            ),
        }
        Ok(report)
    }
}

/// Folder of the frames that a model version collected, below the run's. The coordinator makes and
/// removes it, so a collector that comes too late leaves nothing behind.
pub(crate) fn frames_folder(model_version: u64) -> String {
    format!("frames-{model_version}")
}

fn summary(frames: u64, returns: &[f64]) -> CollectorReport {
    let sum: f64 = returns.iter().sum();
    let episodes = returns.len() as u64;
    let mean_return = if returns.is_empty() {
        0.0
    } else {
        sum / episodes as f64
    };
    CollectorReport {
        path: None,
        bytes: 0,
        frames,
        episodes,
        mean_return,
    }
}
