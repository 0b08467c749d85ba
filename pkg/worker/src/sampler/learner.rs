use std::sync::Arc;

use rand::{SeedableRng, rngs::StdRng};

use crate::{
    Result,
    learner::ppo::{Step, Update, process_group::SingleProcess},
    sampler::{
        event_loop::{Component, Slot},
        shared_buffers::{SharedBuffers, TrainingBatch, WEIGHTS},
        signal::Signal,
    },
};

/// Trains a batch, one gradient step at a time. After each step the inference workers get the new
/// weights; between steps other components of the event loop run.
pub(super) struct Learner {
    shared: Arc<SharedBuffers>,
    own: Slot<Signal>,
    inference: Vec<Slot<Signal>>,
    runner: Slot<Signal>,
    update: Option<(Update, StdRng)>,
    /// The weights buffer for the next step.
    buffer: usize,
}

impl Learner {
    pub(super) const fn new(
        shared: Arc<SharedBuffers>,
        own: Slot<Signal>,
        inference: Vec<Slot<Signal>>,
        runner: Slot<Signal>,
    ) -> Self {
        Self {
            shared,
            own,
            inference,
            runner,
            update: None,
            buffer: 0,
        }
    }

    fn begin_batch(&mut self, dataset: usize) -> Result<()> {
        if let Some(lesson) = &*self.shared.lock_batch() {
            let step = Step {
                trajectories: &self.shared.lock_dataset(dataset).to_trajectories(),
                settings: &lesson.settings,
                progress: lesson.progress,
            };
            let update = Update::new(&lesson.model.policy, step)?;
            self.update = Some((update, StdRng::seed_from_u64(lesson.seed)));
        }
        self.own.emit(Signal::Step);
        Ok(())
    }

    fn learn_step(&mut self) -> Result<()> {
        let mut lesson = self.shared.lock_batch();
        let (Some(lesson), Some((update, rng))) = (&mut *lesson, &mut self.update) else {
            return Ok(());
        };
        let TrainingBatch { model, .. } = lesson;
        if update.gradient_step(&mut model.policy, &mut model.adam, rng, &mut SingleProcess)? {
            lesson.steps += 1;
            self.shared.write_weights(self.buffer, &model.policy);
            for worker in &self.inference {
                worker.emit(Signal::Published(self.buffer));
            }
            self.buffer = (self.buffer + 1) % WEIGHTS;
            self.own.emit(Signal::Step);
        } else {
            model.version += 1;
            lesson.losses = update.mean_losses();
            self.update = None;
            self.runner.emit(Signal::Learned);
        }
        Ok(())
    }
}

impl Component<Signal> for Learner {
    fn handle_signal(&mut self, signal: Signal) {
        let taken = match signal {
            Signal::Learn(dataset) => self.begin_batch(dataset),
            Signal::Step => self.learn_step(),
            _ => Ok(()),
        };
        if let Err(error) = taken {
            self.shared.set_failure(error);
            self.runner.emit(Signal::Failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        environment::{Ending, OBSERVATION_SIZE},
        learner::{
            ppo::{Losses, update_policy},
            settings::Settings,
        },
        model::model_file::Model,
        sampler::{
            event_loop::EventLoop,
            pipeline::Pipeline,
            rollout::{Rollout, Trajectory},
            sampling::Sampling,
            trajectory_buffer,
        },
    };

    /// Fills a data set with trajectories, one per row.
    fn fill_dataset(shared: &SharedBuffers, dataset: usize, trajectories: &[Trajectory]) {
        let width = OBSERVATION_SIZE;
        let lengths = trajectories.iter().map(|played| played.actions.len());
        let mut rows = shared.lock_dataset(dataset);
        rows.reset_shape(0, 0, trajectories.len(), lengths.max().unwrap(), width);
        for (row, played) in trajectories.iter().enumerate() {
            let seen: Vec<_> = played.observations.chunks_exact(width).collect();
            for (at, &action) in played.actions.iter().enumerate() {
                let is_over = played.terminated && at + 1 == played.actions.len();
                let step = trajectory_buffer::Step {
                    before: seen[at],
                    after: seen[at + 1],
                    action,
                    reward: played.rewards[at],
                    log_probability: played.log_probabilities[at],
                    ending: is_over.then_some(Ending::Terminated),
                };
                rows.push_step(row, &step);
            }
        }
    }

    #[test]
    fn weights_are_published_after_each_gradient_step() {
        let mut model = Model::random(&mut StdRng::seed_from_u64(1));
        let mut pipeline = Pipeline::new(Sampling::default()).unwrap();
        let played = pipeline.collect(&model.policy, 40, 2).unwrap();
        let Rollout { trajectories, .. } = played;
        let settings = Settings {
            num_epochs: 2,
            batch_size: 16,
            ..Settings::default()
        };
        let shared = Arc::new(SharedBuffers::new(Sampling::default()));
        let mut main_loop = EventLoop::default();
        let (outbox, own) = (main_loop.new_slot(), main_loop.new_slot());
        let inference = vec![outbox.clone(); 2];
        let component = Learner::new(shared.clone(), own.clone(), inference, outbox);
        main_loop.put_component(&own, component);
        *shared.lock_batch() = Some(TrainingBatch {
            model: model.clone(),
            settings: settings.clone(),
            progress: 0.5,
            seed: 3,
            steps: 0,
            losses: Losses::default(),
        });
        // The other data set is empty.
        fill_dataset(&shared, 1, &trajectories);
        own.emit(Signal::Learn(1));

        let mut before = model.policy.clone();
        for step in 0..6 {
            let buffer = step % WEIGHTS;
            let both = [main_loop.run_until_signal(), main_loop.run_until_signal()];
            assert_eq!(
                both,
                [Some(Signal::Published(buffer)); 2],
                "one signal per worker"
            );
            let weights = shared.lock_weights(buffer).clone().unwrap();
            assert_ne!(weights, before, "step {step}");
            before = weights;
        }
        assert_eq!(main_loop.run_until_signal(), Some(Signal::Learned));
        let learned = shared.lock_batch().take().unwrap();
        assert_eq!((learned.steps, learned.model.version), (6, 1));
        assert_eq!(learned.model.policy, before);

        let step = Step {
            trajectories: &trajectories,
            settings: &settings,
            progress: 0.5,
        };
        let mut rng = StdRng::seed_from_u64(3);
        let Model { policy, adam, .. } = &mut model;
        let losses = update_policy(policy, adam, step, &mut rng, &mut SingleProcess).unwrap();
        assert_eq!((losses, &*policy), (learned.losses, &before), "all at once");
    }
}
