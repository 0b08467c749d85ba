use std::sync::Arc;

use crate::{
    environment::OBSERVATION_SIZE,
    sampler::{
        event_loop::{Component, Slot},
        shared_buffers::SharedBuffers,
        signal::Signal,
    },
};

/// Builds a data set from trajectory buffers: copies the steps of each environment to their place.
/// With batched sampling it forwards the buffers, and the reader copies them.
pub(super) struct Batcher {
    shared: Arc<SharedBuffers>,
    workers: Vec<Slot<Signal>>,
    sampler: Slot<Signal>,
    /// The data set and the number of missing steps.
    dataset: usize,
    missing: usize,
}

impl Batcher {
    pub(super) const fn new(
        shared: Arc<SharedBuffers>,
        workers: Vec<Slot<Signal>>,
        sampler: Slot<Signal>,
    ) -> Self {
        Self {
            shared,
            workers,
            sampler,
            dataset: 0,
            missing: 0,
        }
    }

    fn begin_order(&mut self) {
        let Some(order) = self.shared.current_order() else {
            return;
        };
        let sampling = &self.shared.sampling;
        (self.dataset, self.missing) = (order.dataset, order.frame_count());
        // During an evaluation the last data set may still be trained on.
        if order.records_steps() {
            let (rows, columns) = (
                sampling.environment_count(),
                order.max_frames_per_env(sampling),
            );
            let mut dataset = self.shared.lock_dataset(self.dataset);
            dataset.reset_shape(0, 0, rows, columns, OBSERVATION_SIZE);
        }
    }

    fn add_buffer(&mut self, block: usize) {
        let mut dataset = self.shared.lock_dataset(self.dataset);
        let placed = dataset.place_steps(&self.shared.lock_buffer(block));
        drop(dataset);
        self.missing -= placed;
        let (split, _) = self.shared.buffer_owner(block);
        self.workers[self.shared.worker_of_split(split)].emit(Signal::Freed(block));
        if self.missing == 0 {
            self.sampler.emit(Signal::Dataset(self.dataset));
        }
    }
}

impl Component<Signal> for Batcher {
    fn handle_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Begin => self.begin_order(),
            Signal::Filled(block) if self.shared.sampling.batched_sampling => {
                self.sampler.emit(Signal::Passed(block));
            }
            Signal::Filled(block) => self.add_buffer(block),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;
    use crate::{
        environment::Ending,
        model::{network::Network, policy::Policy},
        protocol::wire::Work,
        sampler::{
            event_loop::EventLoop, rollout::Trajectory, sampling::Sampling, shared_buffers::Order,
            trajectory_buffer::Step,
        },
    };

    /// Two workers with one environment each, which play three and two steps; a buffer has two.
    fn new_batcher(
        batched_sampling: bool,
    ) -> (EventLoop<Signal>, Slot<Signal>, Arc<SharedBuffers>) {
        let shared = Arc::new(SharedBuffers::new(Sampling {
            num_workers: 2,
            num_envs_per_worker: 1,
            worker_num_splits: 1,
            rollout: 2,
            batched_sampling,
            ..Sampling::default()
        }));
        let policy = Policy::random(&mut StdRng::seed_from_u64(1));
        shared.publish_order(Order {
            network: Network::new(&policy).unwrap(),
            work: Work::Collect { frames: 5 },
            seed: 0,
            dataset: 1,
        });
        let mut main_loop = EventLoop::default();
        let (outbox, batcher) = (main_loop.new_slot(), main_loop.new_slot());
        let workers = vec![outbox.clone(), outbox.clone()];
        main_loop.put_component(&batcher, Batcher::new(shared.clone(), workers, outbox));
        batcher.emit(Signal::Begin);
        (main_loop, batcher, shared)
    }

    fn fill_buffer(
        shared: &SharedBuffers,
        block: usize,
        environment: usize,
        start: usize,
        rewards: &[f32],
    ) {
        let mut block = shared.lock_buffer(block);
        block.reset_shape(environment, start, 1, 2, 4);
        for &reward in rewards {
            let step = Step {
                before: &[reward - 1.0, 0.0, 0.0, 0.0],
                after: &[reward, 0.0, 0.0, 0.0],
                action: 1,
                reward,
                log_probability: 0.0,
                ending: (reward > 90.0).then_some(Ending::Terminated),
            };
            block.push_step(0, &step);
        }
    }

    /// The rewards of each trajectory, and whether it terminated.
    fn rewards_of(played: &[Trajectory]) -> Vec<(Vec<f32>, bool)> {
        let all = played.iter();
        all.map(|trajectory| (trajectory.rewards.clone(), trajectory.terminated))
            .collect()
    }

    #[test]
    fn out_of_order_buffers_are_placed_correctly() {
        let (mut main_loop, batcher, shared) = new_batcher(false);
        let (first, second) = ((0, 0, 0, &[1.0, 2.0][..]), (1, 0, 2, &[3.0][..]));
        let other = (2, 1, 0, &[11.0, 91.0][..]);
        for parts in [
            [first, second, other],
            [first, other, second],
            [other, first, second],
        ] {
            batcher.emit(Signal::Begin);
            for (block, environment, start, rewards) in parts {
                fill_buffer(&shared, block, environment, start, rewards);
                batcher.emit(Signal::Filled(block));
                assert_eq!(
                    main_loop.run_until_signal(),
                    Some(Signal::Freed(block)),
                    "the buffer is free"
                );
            }
            assert_eq!(main_loop.run_until_signal(), Some(Signal::Dataset(1)));
            let played = shared.lock_dataset(1).to_trajectories();
            let all = [(vec![1.0, 2.0, 3.0], false), (vec![11.0, 91.0], true)];
            assert_eq!(rewards_of(&played), all);
            let seen = played[0].observations.chunks(4).map(|seen| seen[0]);
            let seen: Vec<_> = seen.collect();
            assert_eq!(seen, [0.0, 1.0, 2.0, 3.0], "no observation is stored twice");
        }
    }

    #[test]
    fn batched_buffers_pass_through() {
        let (mut main_loop, batcher, shared) = new_batcher(true);
        for (block, environment, start, rewards) in [
            (0, 0, 0, &[1.0, 92.0][..]),
            (2, 1, 0, &[11.0, 12.0]),
            (1, 0, 2, &[3.0]),
        ] {
            fill_buffer(&shared, block, environment, start, rewards);
            batcher.emit(Signal::Filled(block));
            assert_eq!(
                main_loop.run_until_signal(),
                Some(Signal::Passed(block)),
                "the buffer is not freed"
            );
            shared
                .lock_dataset(1)
                .place_steps(&shared.lock_buffer(block));
        }
        let played = shared.lock_dataset(1).to_trajectories();
        let all = [
            (vec![1.0, 92.0], true),
            (vec![3.0], false),
            (vec![11.0, 12.0], false),
        ];
        assert_eq!(rewards_of(&played), all);
    }
}
