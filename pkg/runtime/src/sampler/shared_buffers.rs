//! What components share: buffers that are there from the start, each known by its number. What they hold of memory they have from the
//! beginning of an order on, and keep for the next ones. Whoever was told a number last has the buffer for itself, so nobody waits for its
//! lock.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{trajectory_buffer::TrajectoryBuffer, share_of};
use crate::{
    Error, Result,
    model::Model,
    network::Network,
    policy::Policy,
    ppo::{Losses, Settings},
    sampling::Sampling,
    wire::Work,
};

/// Trajectory buffers of each row of environments: while one is on its way, the other is filled.
const BUFFERS: usize = 2;
/// Buffers of weights: while one is read, the next ones are written to the other.
pub(super) const WEIGHTS: usize = 2;

/// Data sets: while one is learned from, the next one is put together.
pub(super) const DATASETS: usize = 2;

/// What is to be sampled.
#[derive(Debug)]
pub(crate) struct Order {
    pub(super) network: Network,
    pub(super) work: Work,
    pub(super) seed: u64,
    /// The data set for what is collected.
    pub(super) dataset: usize,
}

impl Order {
    /// What a policy is to do.
    pub(crate) fn new(policy: &Policy, work: Work, seed: u64) -> Result<Self> {
        Ok(Self {
            network: Network::new(policy)?,
            work,
            seed,
            dataset: 0,
        })
    }

    /// Whether steps are recorded.
    pub(super) const fn records_steps(&self) -> bool {
        matches!(self.work, Work::Collect { .. })
    }

    /// Steps to record.
    pub(super) const fn frame_count(&self) -> usize {
        match self.work {
            Work::Collect { frames } => frames,
            Work::Evaluate { .. } => 0,
        }
    }

    /// Most steps to record of an environment.
    pub(super) const fn max_frames_per_env(&self, sampling: &Sampling) -> usize {
        share_of(self.frame_count(), sampling.environment_count(), 0)
    }

    /// Steps of an environment that fit into a trajectory buffer.
    pub(super) fn buffer_columns(&self, sampling: &Sampling) -> usize {
        self.max_frames_per_env(sampling).min(sampling.rollout)
    }

    /// Numbers of an observation.
    pub(super) const fn observation_size(&self) -> usize {
        self.network.game().rules().observation_size()
    }
}

/// Where rollout and inference worker meet: a place for each environment of a split.
#[derive(Debug, Default)]
pub(super) struct ActionExchange {
    /// The places that wait for an action.
    pub(super) live: Vec<usize>,
    /// What is seen there.
    pub(super) observations: Vec<f32>,
    /// Uniform in 0..1: what decides the action there.
    pub(super) draws: Vec<f64>,
    /// What to do there.
    pub(super) actions: Vec<u8>,
    /// Logarithm of the probability of that.
    pub(super) log_probabilities: Vec<f32>,
}

impl ActionExchange {
    /// Has a place for each environment; nobody waits.
    pub(super) fn reset_shape(&mut self, environments: usize, width: usize) {
        self.live.clear();
        self.observations.resize(environments * width, 0.0);
        self.draws.resize(environments, 0.0);
        self.actions.resize(environments, 0);
        self.log_probabilities.resize(environments, 0.0);
    }
}

/// What a split tells of what it did.
#[derive(Debug, Default)]
pub(super) struct SampleCounts {
    /// Returns of the episodes that ended, each with what it is sorted by.
    pub(super) returns: Vec<(usize, f64)>,
    /// Steps made.
    pub(super) frames: u64,
}

impl SampleCounts {
    /// Takes another one in.
    pub(super) fn add_counts(&mut self, other: Self) {
        self.frames += other.frames;
        self.returns.extend(other.returns);
    }

    /// The returns, sorted.
    pub(super) fn sorted_returns(mut self) -> Vec<f64> {
        self.returns.sort_by_key(|(key, _)| *key);
        self.returns.into_iter().map(|(_, value)| value).collect()
    }
}

/// A data set that was collected.
#[derive(Debug)]
pub(crate) struct Dataset {
    /// Which one.
    pub(crate) number: usize,
    /// Steps in it.
    pub(crate) frames: u64,
    /// Returns of the episodes that ended.
    pub(crate) returns: Vec<f64>,
}

/// What is to be learned, and what became of it.
#[derive(Debug)]
pub(crate) struct TrainingBatch {
    /// What learns.
    pub(crate) model: Model,
    /// How.
    pub(crate) settings: Settings,
    /// How far the training is, in 0..=1.
    pub(crate) progress: f64,
    /// Decides all that is random.
    pub(crate) seed: u64,
    /// Gradient steps that were made.
    pub(crate) steps: u64,
    /// Mean losses over them.
    pub(crate) losses: Losses,
}

/// All that is shared.
#[derive(Debug)]
pub(super) struct SharedBuffers {
    pub(super) sampling: Sampling,
    order: Mutex<Option<Arc<Order>>>,
    exchanges: Vec<Mutex<ActionExchange>>,
    tallies: Vec<Mutex<SampleCounts>>,
    blocks: Vec<Mutex<TrajectoryBuffer>>,
    datasets: Vec<Mutex<TrajectoryBuffer>>,
    lesson: Mutex<Option<TrainingBatch>>,
    weights: Vec<Mutex<Option<Policy>>>,
    failure: Mutex<Option<Error>>,
}

impl SharedBuffers {
    pub(super) fn new(sampling: Sampling) -> Self {
        let splits = sampling.split_count();
        let mut shared = Self {
            sampling,
            order: Mutex::default(),
            exchanges: default_mutexes(splits),
            tallies: default_mutexes(splits),
            blocks: Vec::new(),
            datasets: default_mutexes(DATASETS),
            lesson: Mutex::default(),
            weights: default_mutexes(WEIGHTS),
            failure: Mutex::default(),
        };
        shared.blocks = default_mutexes(splits * shared.lane_count() * BUFFERS);
        shared
    }

    /// The environments of a split.
    pub(super) const fn split_environments(&self, split: usize) -> Range<usize> {
        let size = self.sampling.split_size();
        split * size..(split + 1) * size
    }

    /// Trajectory buffers that each split fills at a time: one for all of its environments, or one for each.
    pub(super) const fn lane_count(&self) -> usize {
        self.sampling.split_size() / self.rows_per_buffer()
    }

    /// Environments that share a trajectory buffer.
    pub(super) const fn rows_per_buffer(&self) -> usize {
        if self.sampling.batched_sampling {
            self.sampling.split_size()
        } else {
            1
        }
    }

    /// The lane of an environment of a split, and its row in the trajectory buffer.
    pub(super) const fn lane_and_row(&self, place: usize) -> (usize, usize) {
        (place / self.rows_per_buffer(), place % self.rows_per_buffer())
    }

    /// The trajectory buffers of a lane of a split.
    pub(super) fn lane_buffers(&self, split: usize, lane: usize) -> Vec<usize> {
        let first = (split * self.lane_count() + lane) * BUFFERS;
        (first..first + BUFFERS).collect()
    }

    /// The split, and its lane, that a trajectory buffer belongs to.
    pub(super) const fn buffer_owner(&self, block: usize) -> (usize, usize) {
        let lane = block / BUFFERS;
        (lane / self.lane_count(), lane % self.lane_count())
    }

    /// The worker that has a split.
    pub(super) const fn worker_of_split(&self, split: usize) -> usize {
        split / self.sampling.worker_num_splits
    }

    pub(super) fn publish_order(&self, order: Order) {
        *lock_unpoisoned(&self.order) = Some(Arc::new(order));
    }

    pub(super) fn current_order(&self) -> Option<Arc<Order>> {
        lock_unpoisoned(&self.order).clone()
    }

    pub(super) fn lock_exchange(&self, split: usize) -> MutexGuard<'_, ActionExchange> {
        lock_unpoisoned(&self.exchanges[split])
    }

    pub(super) fn lock_counts(&self, split: usize) -> MutexGuard<'_, SampleCounts> {
        lock_unpoisoned(&self.tallies[split])
    }

    pub(super) fn lock_buffer(&self, block: usize) -> MutexGuard<'_, TrajectoryBuffer> {
        lock_unpoisoned(&self.blocks[block])
    }

    /// A data set: a row for each environment.
    pub(super) fn lock_dataset(&self, dataset: usize) -> MutexGuard<'_, TrajectoryBuffer> {
        lock_unpoisoned(&self.datasets[dataset])
    }

    /// What is to be learned.
    pub(super) fn lock_batch(&self) -> MutexGuard<'_, Option<TrainingBatch>> {
        lock_unpoisoned(&self.lesson)
    }

    /// Writes weights to a buffer.
    pub(super) fn write_weights(&self, buffer: usize, policy: &Policy) {
        match &mut *lock_unpoisoned(&self.weights[buffer]) {
            Some(written) if written.game() == policy.game() => {
                written
                    .parameters_mut()
                    .copy_from_slice(policy.parameters());
            }
            empty => *empty = Some(policy.clone()),
        }
    }

    /// The weights of a buffer.
    pub(super) fn lock_weights(&self, buffer: usize) -> MutexGuard<'_, Option<Policy>> {
        lock_unpoisoned(&self.weights[buffer])
    }

    /// Notes why a component cannot do its part.
    pub(super) fn set_failure(&self, error: Error) {
        *lock_unpoisoned(&self.failure) = Some(error);
    }

    /// Why a component could not do its part.
    pub(super) fn take_failure(&self) -> Option<Error> {
        lock_unpoisoned(&self.failure).take()
    }

    /// Where the memory of trajectory buffers and data sets is.
    #[cfg(test)]
    pub(super) fn memory_addresses(&self) -> Vec<[(usize, usize); 7]> {
        let all = self.blocks.iter().chain(&self.datasets);
        all.map(|block| lock_unpoisoned(block).memory_addresses()).collect()
    }

    /// Trajectory buffers that somebody has.
    #[cfg(test)]
    pub(super) fn borrowed_buffers(&self) -> usize {
        self.blocks.iter().filter(|block| lock_unpoisoned(block).borrowed).count()
    }
}

fn default_mutexes<T: Default>(number: usize) -> Vec<Mutex<T>> {
    (0..number).map(|_| Mutex::default()).collect()
}

/// What a component that panicked has left is not used any more.
fn lock_unpoisoned<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
