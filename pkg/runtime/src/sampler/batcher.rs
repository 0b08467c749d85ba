use std::sync::Arc;

use super::{Signal, shared::Shared};
use crate::signal::{Component, Slot};

/// Makes a data set of trajectory buffers: the steps of all, which come as their environments have them, are put together, each at its place.
/// With batched sampling they pass through as they are, and whoever reads them has them put there.
pub(super) struct Batcher {
    shared: Arc<Shared>,
    workers: Vec<Slot<Signal>>,
    sampler: Slot<Signal>,
    /// The data set, and how many steps it does not hold yet.
    dataset: usize,
    missing: usize,
}

impl Batcher {
    pub(super) const fn new(
        shared: Arc<Shared>,
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

    fn begin(&mut self) {
        let Some(order) = self.shared.order() else {
            return;
        };
        let sampling = &self.shared.sampling;
        (self.dataset, self.missing) = (order.dataset, order.frames());
        // That of an order to evaluate may still be learned from.
        if order.collects() {
            let (rows, columns) = (sampling.environments(), order.most(sampling));
            let mut dataset = self.shared.dataset(self.dataset);
            dataset.shape(0, 0, rows, columns, order.width());
        }
    }

    fn take_in(&mut self, block: usize) {
        let mut dataset = self.shared.dataset(self.dataset);
        let placed = dataset.place(&self.shared.block(block));
        drop(dataset);
        self.missing -= placed;
        let (split, _) = self.shared.owner(block);
        self.workers[self.shared.worker(split)].emit(Signal::Freed(block));
        if self.missing == 0 {
            self.sampler.emit(Signal::Dataset(self.dataset));
        }
    }
}

impl Component<Signal> for Batcher {
    fn take(&mut self, signal: Signal) {
        match signal {
            Signal::Begin => self.begin(),
            Signal::Filled(block) if self.shared.sampling.batched_sampling => {
                self.sampler.emit(Signal::Passed(block));
            }
            Signal::Filled(block) => self.take_in(block),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;
    use crate::{
        game::{Ending, Game},
        network::Network,
        policy::Policy,
        rollout::Trajectory,
        sampler::{block::Step, shared::Order},
        sampling::Sampling,
        signal::EventLoop,
        wire::Work,
    };

    /// Two workers with an environment each, that play three and two steps, of which two fit into a buffer.
    fn batching(batched_sampling: bool) -> (EventLoop<Signal>, Slot<Signal>, Arc<Shared>) {
        let shared = Arc::new(Shared::new(Sampling {
            num_workers: 2,
            num_envs_per_worker: 1,
            worker_num_splits: 1,
            rollout: 2,
            batched_sampling,
            ..Sampling::default()
        }));
        let policy = Policy::random(Game::MountainCar, &mut StdRng::seed_from_u64(1));
        shared.publish(Order {
            network: Network::new(&policy).unwrap(),
            work: Work::Collect { frames: 5 },
            seed: 0,
            dataset: 1,
        });
        let mut home = EventLoop::default();
        let (told, batcher) = (home.slot(), home.slot());
        let workers = vec![told.clone(), told.clone()];
        home.put(&batcher, Batcher::new(shared.clone(), workers, told));
        batcher.emit(Signal::Begin);
        (home, batcher, shared)
    }

    fn fill(shared: &Shared, block: usize, environment: usize, start: usize, rewards: &[f32]) {
        let mut block = shared.block(block);
        block.shape(environment, start, 1, 2, 2);
        for &reward in rewards {
            let step = Step {
                before: &[reward - 1.0, 0.0],
                after: &[reward, 0.0],
                action: 1,
                reward,
                log_probability: 0.0,
                ending: (reward > 90.0).then_some(Ending::Terminated),
            };
            block.push(0, &step);
        }
    }

    /// The rewards of each trajectory, and whether it was terminated.
    fn rewards(played: &[Trajectory]) -> Vec<(Vec<f32>, bool)> {
        let all = played.iter();
        all.map(|trajectory| (trajectory.rewards.clone(), trajectory.terminated))
            .collect()
    }

    #[test]
    fn trajectories_that_come_as_they_will_are_put_in_their_places() {
        let (mut home, batcher, shared) = batching(false);
        let (first, second) = ((0, 0, 0, &[1.0, 2.0][..]), (1, 0, 2, &[3.0][..]));
        let other = (2, 1, 0, &[11.0, 91.0][..]);
        for parts in [
            [first, second, other],
            [first, other, second],
            [other, first, second],
        ] {
            batcher.emit(Signal::Begin);
            for (block, environment, start, rewards) in parts {
                fill(&shared, block, environment, start, rewards);
                batcher.emit(Signal::Filled(block));
                assert_eq!(
                    home.hear(),
                    Some(Signal::Freed(block)),
                    "it may be filled again"
                );
            }
            assert_eq!(home.hear(), Some(Signal::Dataset(1)));
            let played = shared.dataset(1).trajectories();
            let all = [(vec![1.0, 2.0, 3.0], false), (vec![11.0, 91.0], true)];
            assert_eq!(rewards(&played), all);
            let seen = &played[0].observations;
            assert_eq!(
                seen,
                &[0.0, 0.0, 1.0, 0.0, 2.0, 0.0, 3.0, 0.0],
                "what is seen twice is there once"
            );
        }
    }

    #[test]
    fn batched_trajectories_pass_through_and_stay_with_their_reader() {
        let (mut home, batcher, shared) = batching(true);
        for (block, environment, start, rewards) in [
            (0, 0, 0, &[1.0, 92.0][..]),
            (2, 1, 0, &[11.0, 12.0]),
            (1, 0, 2, &[3.0]),
        ] {
            fill(&shared, block, environment, start, rewards);
            batcher.emit(Signal::Filled(block));
            assert_eq!(
                home.hear(),
                Some(Signal::Passed(block)),
                "and nobody is told to fill it again"
            );
            shared.dataset(1).place(&shared.block(block));
        }
        let played = shared.dataset(1).trajectories();
        let all = [
            (vec![1.0, 92.0], true),
            (vec![3.0], false),
            (vec![11.0, 12.0], false),
        ];
        assert_eq!(rewards(&played), all);
    }
}
