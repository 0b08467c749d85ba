use std::{ops::ControlFlow, time::Instant};

use crate::{
    Error, Result,
    checkpoint::{Checkpoint, CheckpointStore},
    coordinator::{
        progress::{Outcome, Progress},
        training::Goal,
    },
    environment::{EnvFactory, mix_seeds},
    learner::{ppo::Losses, settings::Settings},
    lifecycle::{PollResult, Stats},
    model::Model,
    protocol::wire::Work,
    sampler::{
        running_pipeline::RunningPipeline,
        sampling::Sampling,
        shared_buffers::{Dataset, Order, TrainingBatch},
    },
};

/// Runs the iterations of a serial training.
pub(super) struct Runner {
    goal: Goal,
    settings: Settings,
    running: RunningPipeline,
    store: Option<CheckpointStore>,
    model: Model,
    /// Frames collected with the previous model.
    ahead: Option<Dataset>,
    progress: Progress,
    losses: Losses,
    gradient_steps: u64,
}

impl Runner {
    /// A runner that resumes from the newest checkpoint.
    pub(super) fn resume_or_start(
        goal: Goal,
        settings: Settings,
        (sampling, maker): (&Sampling, &EnvFactory),
        store: Option<CheckpointStore>,
    ) -> Result<Self> {
        let found = match &store {
            Some(store) => store.load_newest()?,
            None => None,
        };
        sampling.check()?;
        let at = found.unwrap_or_else(|| Checkpoint::new_initial(goal.seed));
        Ok(Self {
            progress: Progress {
                iteration: at.model.version,
                frames: at.frames,
                mean_return: at.mean_return,
                ..Progress::default()
            },
            model: at.model,
            running: RunningPipeline::start(sampling, maker, true)?,
            goal,
            settings,
            store,
            ahead: None,
            losses: Losses::default(),
            gradient_steps: 0,
        })
    }

    /// Evaluates the model and trains the next version, unless the training has ended.
    pub(super) fn run_iteration(&mut self) -> Result<ControlFlow<Outcome, PollResult>> {
        let evaluation = self.evaluate_model()?;
        self.progress.evaluation = Some(evaluation);
        tracing::info!("{}", self.progress.log_line());
        if evaluation >= self.goal.target_return {
            return Ok(ControlFlow::Break(Outcome::Solved));
        }
        if self.model.version >= self.goal.max_iterations {
            return Ok(ControlFlow::Break(Outcome::Unsolved));
        }
        let before = self.progress.frames;
        self.train_iteration()?;
        let Self {
            progress, model, ..
        } = self;
        if let Some(store) = &mut self.store {
            store.record_progress(progress.frames, progress.mean_return, || Ok(model.clone()));
        }
        Ok(ControlFlow::Continue(PollResult {
            samples: progress.frames - before,
            batches: 1,
        }))
    }

    /// Saves a checkpoint, or removes all after a finished training. Returns the model and the
    /// final progress.
    pub(super) fn finish_training(&mut self, outcome: Outcome) -> Result<(Model, Progress)> {
        let Self { store, model, .. } = self;
        let mut end = self.progress.clone();
        if !matches!(outcome, Outcome::Solved | Outcome::Unsolved) {
            // The evaluation belongs to the previous model.
            end.evaluation = None;
        }
        if let Some(store) = store {
            match outcome {
                Outcome::Solved | Outcome::Unsolved => store.remove_finished(),
                Outcome::TimedOut | Outcome::Interrupted | Outcome::Ended => {
                    store.save(|| Ok(model.clone()))?;
                }
            }
        }
        Ok((model.clone(), end))
    }

    /// The stats of the training.
    pub(super) fn stats(&self) -> Stats {
        let mut stats = self.progress.stats();
        if self.gradient_steps > 0 {
            stats.insert("gradient_steps".into(), self.gradient_steps as f64);
            stats.extend(self.losses.stats());
        }
        stats
    }

    /// Mean return of the model.
    fn evaluate_model(&mut self) -> Result<f64> {
        let episodes = self.goal.evaluation_episodes;
        let seed = mix_seeds(mix_seeds(self.goal.seed, self.model.version), 1);
        let order = Order::new(&self.model.policy, Work::Evaluate { episodes }, seed)?;
        self.running.begin_order(order);
        self.running.run_until_idle()?;
        Ok(mean_of(&self.running.take_evaluation().returns).unwrap_or_default())
    }

    /// Trains the next model version.
    fn train_iteration(&mut self) -> Result<()> {
        let start = Instant::now();
        let Dataset {
            number,
            frames,
            returns,
        } = self.next_dataset()?;
        if self.goal.overlap {
            // Collecting begins before the first gradient step and continues with the weights of
            // each step.
            let order = self.collect_order(self.model.version + 1)?;
            self.running.begin_order(order);
        }
        self.running.submit_batch(self.training_batch(), number);
        self.running.run_until_idle()?;
        if self.goal.overlap {
            self.ahead = Some(self.running.current_dataset());
        }
        let learned = self.running.take_batch().ok_or(Error::TaskLeft)?;
        self.model = learned.model;
        self.losses = learned.losses;
        self.gradient_steps += learned.steps;
        let progress = &mut self.progress;
        progress.iteration = self.model.version;
        progress.frames += frames;
        progress.mean_return = mean_of(&returns);
        progress.frames_per_second = frames as f64 / start.elapsed().as_secs_f64();
        Ok(())
    }

    /// The data set to train on: frames collected ahead, else new ones.
    fn next_dataset(&mut self) -> Result<Dataset> {
        if let Some(dataset) = self.ahead.take() {
            return Ok(dataset);
        }
        let order = self.collect_order(self.model.version)?;
        self.running.begin_order(order);
        self.running.run_until_idle()?;
        Ok(self.running.current_dataset())
    }

    fn training_batch(&self) -> TrainingBatch {
        let model = self.model.clone();
        let iterations = self.goal.max_iterations.max(1);
        TrainingBatch {
            progress: model.version as f64 / iterations as f64,
            seed: mix_seeds(mix_seeds(self.goal.seed, model.version), u64::MAX),
            model,
            settings: self.settings.clone(),
            steps: 0,
            losses: Losses::default(),
        }
    }

    /// An order to collect frames for a model version.
    fn collect_order(&self, version: u64) -> Result<Order> {
        let frames = self.goal.tasks * self.goal.frames_per_task;
        let seed = mix_seeds(mix_seeds(self.goal.seed, version), 0);
        Order::new(&self.model.policy, Work::Collect { frames }, seed)
    }
}

fn mean_of(returns: &[f64]) -> Option<f64> {
    let sum = returns.iter().sum::<f64>();
    (!returns.is_empty()).then(|| sum / returns.len() as f64)
}
