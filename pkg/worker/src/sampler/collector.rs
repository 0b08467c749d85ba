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
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    };

    use rand::{SeedableRng, rngs::StdRng};

    use super::*;
    use crate::{
        environment::game::Game,
        lifecycle::report::TaskReport,
        model::policy::Policy,
        protocol::env::COLLECTOR_PORT,
        sampler::rollout::{Rollout, Trajectory},
    };

    fn test_environment(sampling: &Sampling) -> Environment {
        Environment::from_lookup(COLLECTOR_PORT, |name| match name {
            "KUBERNETES_POD_NAMESPACE" => Some("rl".to_owned()),
            "KUBERNETES_POD_NAME" => Some(format!("pole-{}", sampling.num_workers)),
            _ => None,
        })
        .unwrap()
    }

    fn new_collector(storage: &Storage, sampling: Sampling) -> Result<Collector> {
        Collector::new(test_environment(&sampling), storage.clone(), sampling)
    }

    /// Stores a model; returns a task.
    fn store_task(storage: &Storage, game: Game, work: Work) -> CollectorTask {
        let run = storage.root().to_owned();
        storage.create_folder(&run.join(frames_folder(0))).unwrap();
        let model = Model::random(game, &mut StdRng::seed_from_u64(1));
        let model_path = run.join("model");
        storage.write(&model_path, &model.encode()).unwrap();
        CollectorTask {
            game,
            run,
            model_version: 0,
            model_path,
            seed: Some(3),
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
        let mut one = new_collector(&storage, Sampling::default()).unwrap();
        let mut many = new_collector(&storage, threaded_sampling()).unwrap();
        let mut both = |work| {
            let task = store_task(&storage, Game::Acrobot, work);
            [&mut one, &mut many].map(|collector| collector.run_task(task.clone(), 0).unwrap())
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
        let mut collector = new_collector(&storage, Sampling::default()).unwrap();
        collector.configure(threaded_sampling()).unwrap();
        assert_eq!(collector.current_config(), threaded_sampling());
        let odd = Sampling {
            num_envs_per_worker: 3,
            ..Sampling::default()
        };
        assert!(matches!(collector.configure(odd), Err(Error::BadConfig(_))));
        assert_eq!(collector.current_config(), threaded_sampling());
    }

    /// A fake sampler: each step is an episode that returns the number of rollout workers.
    struct Other {
        workers: f64,
        rests: Arc<AtomicU32>,
    }

    impl Sampler for Other {
        fn collect(&mut self, policy: &Policy, frames: usize, _: u64) -> Result<Rollout> {
            let step = Trajectory {
                observations: vec![0.5; 2 * policy.game().rules().observation_size()],
                actions: vec![1],
                rewards: vec![1.0],
                log_probabilities: vec![-0.5],
                terminated: true,
            };
            Ok(Rollout {
                trajectories: vec![step; frames],
                returns: vec![self.workers; frames],
            })
        }

        fn evaluate(&mut self, _: &Policy, episodes: usize, _: u64) -> Result<Evaluation> {
            Ok(Evaluation {
                returns: vec![-self.workers; episodes],
                frames: 7,
            })
        }

        fn stop_workers(&mut self) {
            self.rests.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn custom_sampler_replaces_pipeline() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path()).unwrap();
        let rests = Arc::<AtomicU32>::default();
        let counted = rests.clone();
        let make = move |sampling: &Sampling| -> Result<Box<dyn Sampler>> {
            sampling.check()?;
            Ok(Box::new(Other {
                workers: sampling.num_workers as f64,
                rests: counted.clone(),
            }))
        };
        let sampling = Sampling::default();
        let of = test_environment(&sampling);
        let mut collector = Collector::with_sampler(of, storage.clone(), sampling, make).unwrap();

        let game = Game::CartPole;
        let played = store_task(&storage, game, Work::Collect { frames: 5 });
        let report = collector.run_task(played, 0).unwrap();
        assert_eq!((report.frames, report.episodes), (5, 5));
        assert!((report.mean_return - 1.0).abs() < 1e-9, "{report:?}");
        let file = storage.read(&report.path.unwrap()).unwrap();
        let stored = frames::decode(game, &file).unwrap().trajectories;
        assert_eq!(stored.len(), 5);
        assert_eq!(stored[0].log_probabilities, [-0.5]);

        collector.configure(threaded_sampling()).unwrap();
        let evaluated = store_task(&storage, game, Work::Evaluate { episodes: 3 });
        let report = collector.run_task(evaluated, 0).unwrap();
        assert_eq!((report.frames, report.episodes), (7, 3));
        assert!((report.mean_return + 2.0).abs() < 1e-9, "{report:?}");
        collector.stop_workers();
        assert_eq!(rests.load(SeqCst), 1);
    }
}
