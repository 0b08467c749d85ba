//! The collector: loads the model, samples frames, stores them and reports the file.

use crate::{
    Error, Result,
    model::Model,
    protocol::{
        tasks::TaskWorker,
        wire::{CollectorReport, CollectorTask, Role, Work},
    },
    sampler::{pipeline::Pipeline, rollout::Evaluation, sampling::Sampling},
    storage::{Storage, frames},
};

/// Maximum frames of one task.
pub const MAX_FRAMES: usize = 1 << 20;
/// Maximum episodes of one task.
pub const MAX_EPISODES: usize = 10_000;

/// Runs collector tasks.
pub struct Collector {
    pod: String,
    storage: Storage,
    sampling: Sampling,
    pipeline: Pipeline,
}

impl Collector {
    /// A collector in this pod.
    pub fn new(pod: String, storage: Storage, sampling: Sampling) -> Result<Self> {
        Ok(Self {
            pod,
            storage,
            pipeline: Pipeline::new(sampling.clone())?,
            sampling,
        })
    }
}

impl TaskWorker for Collector {
    type Task = CollectorTask;
    type Report = CollectorReport;
    type Config = Sampling;

    const ROLE: Role = Role::Collector;

    fn current_config(&self) -> Sampling {
        self.sampling.clone()
    }

    fn configure(&mut self, sampling: Sampling) -> Result<()> {
        self.pipeline = Pipeline::new(sampling.clone())?;
        self.sampling = sampling;
        Ok(())
    }

    fn stop_workers(&mut self) {
        self.pipeline.stop_workers();
    }

    fn run_task(&mut self, task: CollectorTask) -> Result<CollectorReport> {
        let model = Model::load(&self.storage, &task.model_path)?;
        let report = match task.work {
            Work::Collect { frames } if (1..=MAX_FRAMES).contains(&frames) => {
                let rollout = self.pipeline.collect(&model.policy, frames, task.seed)?;
                // The pod name separates the files of two collectors with the same task, after the
                // first seemed lost.
                let name = format!("{:016x}-{}.safetensors", task.seed, self.pod);
                let path = task.run.join(frames_folder(model.version)).join(name);
                let file = frames::encode(&rollout.trajectories);
                self.storage.write(&path, &file)?;
                CollectorReport {
                    path: Some(path),
                    ..summarise_returns(frames as u64, &rollout.returns)
                }
            }
            Work::Evaluate { episodes } if (1..=MAX_EPISODES).contains(&episodes) => {
                let Evaluation { returns, frames } =
                    self.pipeline.evaluate(&model.policy, episodes, task.seed)?;
                summarise_returns(frames, &returns)
            }
            Work::Collect { .. } | Work::Evaluate { .. } => {
                let limits = format!(
                    "1 to {MAX_FRAMES} frames or 1 to {MAX_EPISODES} episodes are allowed in one task"
                );
                return Err(Error::BadTask(limits));
            }
        };
        Ok(CollectorReport {
            model_version: model.version,
            ..report
        })
    }
}

/// Folder of the frames of a model version, below the run's. The coordinator creates and removes
/// it, so a late collector leaves nothing behind.
pub(crate) fn frames_folder(model_version: u64) -> String {
    format!("frames-{model_version}")
}

fn summarise_returns(frames: u64, returns: &[f64]) -> CollectorReport {
    let sum: f64 = returns.iter().sum();
    let episodes = returns.len() as u64;
    let mean_return = if returns.is_empty() {
        0.0
    } else {
        sum / episodes as f64
    };
    CollectorReport {
        frames,
        episodes,
        mean_return,
        ..CollectorReport::default()
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;
    use crate::lifecycle::report::TaskReport;

    fn new_collector(storage: &Storage, sampling: Sampling) -> Collector {
        let pod = format!("pole-{}", sampling.num_workers);
        Collector::new(pod, storage.clone(), sampling).unwrap()
    }

    /// Stores a model; returns a task.
    fn store_task(storage: &Storage, work: Work) -> CollectorTask {
        let run = storage.root().to_owned();
        storage.create_folder(&run.join(frames_folder(0))).unwrap();
        let model = Model::random(&mut StdRng::seed_from_u64(1));
        let model_path = run.join("model");
        storage.write(&model_path, &model.encode()).unwrap();
        CollectorTask {
            run,
            model_path,
            seed: 3,
            work,
        }
    }

    fn threaded_sampling() -> Sampling {
        Sampling {
            num_workers: 2,
            num_envs_per_worker: 1,
            worker_num_splits: 1,
            ..Sampling::default()
        }
    }

    #[test]
    fn thread_count_does_not_change_frames() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path()).unwrap();
        let mut one = new_collector(&storage, Sampling::default());
        let mut many = new_collector(&storage, threaded_sampling());
        let mut both = |work| {
            let task = store_task(&storage, work);
            [&mut one, &mut many].map(|collector| collector.run_task(task.clone()).unwrap())
        };
        let [one, other] = both(Work::Collect { frames: 1301 });
        assert_eq!((one.frames, &one.stats()), (1301, &other.stats()));
        let [one, other] = [one, other].map(|report| report.path.unwrap());
        assert_ne!(one, other);
        assert_eq!(storage.read(&one).unwrap(), storage.read(&other).unwrap());
        let [one, other] = both(Work::Evaluate { episodes: 7 });
        assert_eq!((one.episodes, &one), (7, &other));
    }

    #[test]
    fn invalid_sampling_config_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path()).unwrap();
        let mut collector = new_collector(&storage, Sampling::default());
        collector.configure(threaded_sampling()).unwrap();
        assert_eq!(collector.current_config(), threaded_sampling());
        let odd = Sampling {
            num_envs_per_worker: 3,
            ..Sampling::default()
        };
        assert!(matches!(collector.configure(odd), Err(Error::BadConfig(_))));
        assert_eq!(collector.current_config(), threaded_sampling());
    }
}
