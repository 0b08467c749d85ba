//! The learner: loads frames and model, trains, stores the next model, reports it.

use rand::{SeedableRng, rngs::StdRng};

use crate::{
    Error, Result,
    collector::MAX_FRAMES,
    env::Environment,
    frames,
    model::{Model, model_file},
    ppo::{self, Alone, Losses, Ranks, Settings, Step},
    rollout::Trajectory,
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

    fn work(&self, task: LearnerTask, fallback_seed: u64) -> Result<LearnerReport> {
        let mut loaded = self.load(&task)?;
        let seed = task.seed.unwrap_or(fallback_seed);
        let Ok(losses) = loaded.train(&self.settings, task.progress, seed, &mut Alone);
        self.store(&task, &loaded, losses)
    }
}

/// What a task names.
#[derive(Debug)]
pub(crate) struct Loaded {
    model: Model,
    trajectories: Vec<Trajectory>,
    /// Frames in the trajectories.
    pub(crate) frames: u64,
}

impl Loaded {
    /// Makes the model the next version.
    pub(crate) fn train<R: Ranks>(
        &mut self,
        settings: &Settings,
        progress: f64,
        seed: u64,
        ranks: &mut R,
    ) -> Result<Losses, R::Error> {
        let Model {
            policy,
            adam,
            version,
        } = &mut self.model;
        let step = Step {
            trajectories: &self.trajectories,
            settings,
            progress,
        };
        let mut rng = StdRng::seed_from_u64(seed);
        let losses = ppo::update_with(policy, adam, step, &mut rng, ranks)?;
        *version += 1;
        Ok(losses)
    }
}

impl Learner {
    /// Loads what a task names.
    pub(crate) fn load(&self, task: &LearnerTask) -> Result<Loaded> {
        let game = task.game;
        let model = Model::load(&self.storage, &task.model_path, game, task.model_version)?;
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
        Ok(Loaded {
            model,
            trajectories,
            frames: count as u64,
        })
    }

    /// Stores the model that was trained.
    pub(crate) fn store(
        &self,
        task: &LearnerTask,
        trained: &Loaded,
        losses: Losses,
    ) -> Result<LearnerReport> {
        let Loaded { model, frames, .. } = trained;
        let path = task.run.join(model_file(model.version));
        let bytes = self.storage.write(&path, &model.encode())?;
        tracing::info!(
            "trained model {} on {frames} frames: policy loss {:.4}, value loss {:.4}, entropy {:.3}",
            model.version,
            losses.policy,
            losses.value,
            losses.entropy
        );
        Ok(LearnerReport {
            model_path: path,
            model_version: model.version,
            bytes,
            frames: *frames,
            policy_loss: losses.policy,
            value_loss: losses.value,
            entropy: losses.entropy,
        })
    }
}
