//! The learner: loads a model and frames, trains, stores the next model and reports it.

pub(crate) mod advantage;
mod batcher;
pub mod ppo;
pub mod settings;
pub mod staleness;

use rand::{SeedableRng, rngs::StdRng};

use crate::{
    Error, Result,
    learner::{
        ppo::{
            Losses, Step,
            process_group::{ProcessGroup, SingleProcess},
        },
        settings::Settings,
        staleness::Staleness,
    },
    model::{Model, model_file::model_file},
    protocol::{
        env::Environment,
        tasks::TaskWorker,
        wire::{LearnerReport, LearnerTask, Role},
    },
    sampler::rollout::Trajectory,
    storage::{Storage, frames},
};
use batcher::Batcher;

/// Runs learner tasks.
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

    fn pod_name(&self) -> &str {
        &self.environment.pod
    }

    fn replica_index(&self) -> u64 {
        self.environment.replica_index
    }

    fn current_config(&self) -> Settings {
        self.settings.clone()
    }

    fn configure(&mut self, settings: Settings) -> Result<()> {
        settings.check()?;
        self.settings = settings;
        Ok(())
    }

    fn run_task(&mut self, task: LearnerTask, fallback_seed: u64) -> Result<LearnerReport> {
        let mut loaded = self.load_task(&task, &self.settings)?;
        let seed = task.seed.unwrap_or(fallback_seed);
        let losses = loaded.train_model(&self.settings, task.progress, seed, &mut SingleProcess)?;
        self.store_model(&task, &loaded, losses)
    }
}

/// The loaded files of a task.
#[derive(Debug)]
pub(crate) struct LoadedTask {
    model: Model,
    trajectories: Vec<Trajectory>,
    /// Frames in the trajectories.
    pub(crate) frames: u64,
    /// Counts of stale and dropped frames.
    pub(crate) staleness: Staleness,
}

impl LoadedTask {
    /// Trains the next model version, unless no frames are left.
    pub(crate) fn train_model(
        &mut self,
        settings: &Settings,
        progress: f64,
        seed: u64,
        ranks: &mut impl ProcessGroup,
    ) -> Result<Losses> {
        if self.trajectories.is_empty() {
            return Ok(Losses::default());
        }
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
        let losses = ppo::update_policy(policy, adam, step, &mut rng, ranks)?;
        *version += 1;
        Ok(losses)
    }
}

impl Learner {
    /// Loads the files of a task.
    pub(crate) fn load_task(&self, task: &LearnerTask, settings: &Settings) -> Result<LoadedTask> {
        let game = task.game;
        let model = Model::load_checked(&self.storage, &task.model_path, game, task.model_version)?;
        let mut batcher = Batcher::new(model.version, settings.max_policy_lag);
        for path in &task.frames {
            batcher.add_frames(frames::decode(game, &self.storage.read(path)?)?)?;
        }
        if batcher.is_empty() {
            return Err(Error::BadTask("there are no frames to train on".to_owned()));
        }
        Ok(LoadedTask {
            model,
            trajectories: batcher.trajectories,
            frames: batcher.frames as u64,
            staleness: batcher.staleness,
        })
    }

    /// Stores the trained model, if there is one.
    pub(crate) fn store_model(
        &self,
        task: &LearnerTask,
        trained: &LoadedTask,
        losses: Losses,
    ) -> Result<LearnerReport> {
        let LoadedTask {
            model,
            frames,
            staleness,
            ..
        } = trained;
        let (path, bytes) = if model.version == task.model_version {
            let dropped = staleness.dropped;
            tracing::warn!(
                "did not train: dropped all {dropped} frames as older than max_policy_lag"
            );
            (task.model_path.clone(), 0)
        } else {
            let path = task.run.join(model_file(model.version));
            let bytes = self.storage.write(&path, &model.encode())?;
            tracing::info!(
                "trained model {} on {frames} frames: policy loss {:.4}, value loss {:.4}, entropy {:.3}",
                model.version,
                losses.policy,
                losses.value,
                losses.entropy
            );
            (path, bytes)
        };
        Ok(LearnerReport {
            model_path: path,
            model_version: model.version,
            bytes,
            frames: *frames,
            policy_loss: losses.policy,
            value_loss: losses.value,
            entropy: losses.entropy,
            staleness: *staleness,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        environment::game::Game,
        protocol::env::LEARNER_PORT,
        sampler::{
            pipeline::{Pipeline, Sampler},
            sampling::Sampling,
        },
    };

    #[test]
    fn stale_frames_are_counted_and_old_ones_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path()).unwrap();
        let settings = Settings {
            max_policy_lag: 2,
            ..Settings::default()
        };
        let environment = Environment::from_lookup(LEARNER_PORT, |name| match name {
            "KUBERNETES_POD_NAMESPACE" => Some("rl".into()),
            "KUBERNETES_POD_NAME" => Some("pole-learner-00001".into()),
            _ => None,
        })
        .unwrap();
        let mut learner = Learner::new(environment, storage.clone(), settings);
        let mut rng = StdRng::seed_from_u64(7);
        let mut model = Model::random(Game::CartPole, &mut rng);
        model.version = 5;
        let model_path = storage.root().join(model_file(5));
        storage.write(&model_path, &model.encode()).unwrap();
        let mut task = LearnerTask {
            game: Game::CartPole,
            run: storage.root().to_owned(),
            frames: Vec::new(),
            model_version: 5,
            model_path,
            progress: 0.0,
            seed: None,
        };
        let mut sampler = Pipeline::new(Sampling::default()).unwrap();
        for (version, frames) in [(2, 10), (3, 20), (4, 30), (5, 40)] {
            let played = sampler.collect(&model.policy, frames, 1).unwrap();
            let played = played.trajectories;
            let path = storage.root().join(format!("of-{version}.safetensors"));
            let file = frames::encode(Game::CartPole, version, &played);
            storage.write(&path, &file).unwrap();
            task.frames.push(path);
        }
        let report = learner.run_task(task.clone(), 0).unwrap();
        let staleness = Staleness {
            stale: 50,
            dropped: 10,
            lag: 3,
        };
        assert_eq!((report.frames, report.staleness), (90, staleness));
        let too_old = LearnerTask {
            frames: task.frames[..1].to_vec(),
            ..task.clone()
        };
        let report = learner.run_task(too_old.clone(), 0).unwrap();
        assert_eq!((report.frames, report.staleness.dropped), (0, 10));
        assert_eq!(report.model_version, 5, "the model stays");
        assert_eq!(report.model_path, too_old.model_path);
        let nothing = LearnerTask {
            frames: Vec::new(),
            ..too_old
        };
        let error = learner.run_task(nothing, 0).unwrap_err().to_string();
        assert!(error.contains("no frames to train on"), "{error}");
        model.version = 4;
        storage.write(&task.model_path, &model.encode()).unwrap();
        task.model_version = 4;
        let error = learner.run_task(task, 0).unwrap_err().to_string();
        assert!(error.contains("of model 5, newer than model 4"), "{error}");
    }
}
