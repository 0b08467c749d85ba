//! The learner: loads frames and model, trains, stores the next model, reports it.

use rand::{SeedableRng, rngs::StdRng};

use crate::{
    Error, Result,
    collector::MAX_FRAMES,
    env::Environment,
    frames,
    model::{Model, model_file},
    ppo::{self, Settings},
    storage::Storage,
    tasks::TaskWorker,
    wire::{LearnerReport, LearnerTask, Role},
};

/// Does learner tasks.
#[derive(Clone, Debug)]
pub struct Learner {
    environment: Environment,
    storage: Storage,
    settings: Settings,
}

impl Learner {
    /// A learner that works on `storage`.
    pub const fn new(environment: Environment, storage: Storage, settings: Settings) -> Self {
        Self {
            environment,
            storage,
            settings,
        }
    }
}

impl TaskWorker for Learner {
    type Task = LearnerTask;
    type Report = LearnerReport;
    type Config = Settings;

    const ROLE: Role = Role::Learner;

    fn pod(&self) -> &str {
        &self.environment.pod
    }

    fn replica_index(&self) -> u64 {
        self.environment.replica_index
    }

    fn config(&self) -> Settings {
        self.settings.clone()
    }

    fn configure(&mut self, settings: Settings) -> Result<()> {
        settings.check()?;
        self.settings = settings;
        Ok(())
    }

    fn work(&mut self, task: LearnerTask, fallback_seed: u64) -> Result<LearnerReport> {
        let game = task.game;
        let mut model = Model::load(&self.storage, &task.model_path, game, task.model_version)?;
        let mut trajectories = Vec::new();
        let mut count = 0;
        for path in &task.frames {
            let loaded = frames::decode(game, &self.storage.read(path)?)?;
            count += loaded
                .iter()
                .map(|trajectory| trajectory.actions.len())
                .sum::<usize>();
            if count > MAX_FRAMES {
                return Err(Error::BadTask(format!(
                    "at most {MAX_FRAMES} frames can be trained on at once"
                )));
            }
            trajectories.extend(loaded);
        }
        if count == 0 {
            return Err(Error::BadTask("there are no frames to train on".to_owned()));
        }
        let mut rng = StdRng::seed_from_u64(task.seed.unwrap_or(fallback_seed));
        let Model {
            policy,
            adam,
            version,
        } = &mut model;
        let losses = ppo::update(
            policy,
            adam,
            &trajectories,
            &self.settings,
            task.progress,
            &mut rng,
        );
        *version += 1;
        let path = task.run.join(model_file(*version));
        let bytes = self.storage.write(&path, &model.encode())?;
        tracing::info!(
            "trained model {} on {count} frames: policy loss {:.4}, value loss {:.4}, entropy {:.3}",
            model.version,
            losses.policy,
            losses.value,
            losses.entropy
        );
        Ok(LearnerReport {
            model_path: path,
            model_version: model.version,
            bytes,
            frames: count as u64,
            policy_loss: losses.policy,
            value_loss: losses.value,
            entropy: losses.entropy,
        })
    }
}
