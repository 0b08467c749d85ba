//! The learner: loads a model and frames, trains, stores the next model and reports it.

pub(crate) mod advantage;
pub mod ppo;
pub mod settings;

use rand::{SeedableRng, rngs::StdRng};

use crate::{
    Error, Result,
    learner::{
        ppo::{
            Losses, Step,
            process_group::{ProcessGroup, SingleProcess},
        },
        settings::Settings,
    },
    model::{Model, model_file::model_file},
    protocol::{
        tasks::TaskWorker,
        wire::{LearnerReport, LearnerTask, Role},
    },
    sampler::rollout::Trajectory,
    storage::{Storage, frames},
};

/// Runs learner tasks.
#[derive(Clone, Debug)]
pub struct Learner {
    storage: Storage,
    settings: Settings,
}

impl Learner {
    /// A learner that works on `storage`.
    pub const fn new(storage: Storage, settings: Settings) -> Self {
        Self { storage, settings }
    }

    /// Loads the files of a task.
    pub(crate) fn load_task(&self, task: &LearnerTask) -> Result<LoadedTask> {
        let mut loaded = LoadedTask {
            model: Model::load(&self.storage, &task.model_path)?,
            trajectories: Vec::new(),
        };
        for path in &task.frames {
            let frames = frames::decode(&self.storage.read(path)?)?;
            loaded.trajectories.extend(frames);
        }
        if loaded.trajectories.is_empty() {
            return Err(Error::BadTask("there are no frames to train on".to_owned()));
        }
        Ok(loaded)
    }

    /// Stores the trained model.
    pub(crate) fn store_model(
        &self,
        task: &LearnerTask,
        trained: &LoadedTask,
        losses: Losses,
    ) -> Result<LearnerReport> {
        let (model, frames) = (&trained.model, trained.frame_count());
        let path = task.run.join(model_file(model.version));
        self.storage.write(&path, &model.encode())?;
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
            frames,
            policy_loss: losses.policy,
            value_loss: losses.value,
            entropy: losses.entropy,
        })
    }
}

impl TaskWorker for Learner {
    type Task = LearnerTask;
    type Report = LearnerReport;
    type Config = Settings;

    const ROLE: Role = Role::Learner;

    fn current_config(&self) -> Settings {
        self.settings.clone()
    }

    fn configure(&mut self, settings: Settings) -> Result<()> {
        settings.check()?;
        self.settings = settings;
        Ok(())
    }

    fn run_task(&mut self, task: LearnerTask) -> Result<LearnerReport> {
        let mut loaded = self.load_task(&task)?;
        let losses = loaded.train_model(&self.settings, &task, &mut SingleProcess)?;
        self.store_model(&task, &loaded, losses)
    }
}

/// The loaded files of a task.
#[derive(Debug)]
pub(crate) struct LoadedTask {
    model: Model,
    trajectories: Vec<Trajectory>,
}

impl LoadedTask {
    /// Number of frames.
    pub(crate) fn frame_count(&self) -> u64 {
        let steps = self.trajectories.iter().map(Trajectory::step_count);
        steps.map(u64::from).sum()
    }

    /// Trains the next model version.
    pub(crate) fn train_model(
        &mut self,
        settings: &Settings,
        task: &LearnerTask,
        ranks: &mut impl ProcessGroup,
    ) -> Result<Losses> {
        let Model {
            policy,
            adam,
            version,
        } = &mut self.model;
        let step = Step {
            trajectories: &self.trajectories,
            settings,
            progress: task.progress,
        };
        let mut rng = StdRng::seed_from_u64(task.seed);
        let losses = ppo::update_policy(policy, adam, step, &mut rng, ranks)?;
        *version += 1;
        Ok(losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{pipeline::Pipeline, sampling::Sampling};

    #[test]
    fn learner_trains_on_all_frame_files() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path()).unwrap();
        let mut learner = Learner::new(storage.clone(), Settings::default());
        let mut model = Model::random(&mut StdRng::seed_from_u64(7));
        model.version = 5;
        let model_path = storage.root().join(model_file(5));
        storage.write(&model_path, &model.encode()).unwrap();
        let mut task = LearnerTask {
            run: storage.root().to_owned(),
            frames: Vec::new(),
            model_path,
            progress: 0.0,
            seed: 2,
        };
        let error = learner.run_task(task.clone()).unwrap_err().to_string();
        assert!(error.contains("no frames to train on"), "{error}");
        let mut sampler = Pipeline::new(Sampling::default()).unwrap();
        for frames in [20, 30] {
            let played = sampler.collect(&model.policy, frames, 1).unwrap();
            let path = storage.root().join(format!("{frames}.safetensors"));
            let file = frames::encode(&played.trajectories);
            storage.write(&path, &file).unwrap();
            task.frames.push(path);
        }
        let report = learner.run_task(task).unwrap();
        assert_eq!((report.frames, report.model_version), (50, 6));
        let trained = Model::load(&storage, &report.model_path).unwrap();
        assert_eq!(trained.version, 6);
        assert_ne!(trained.policy, model.policy);
    }
}
