//! The shared buffers of the components, each known by its number. They keep their memory from
//! order to order. The last receiver of a number owns the buffer, so no component waits for its
//! lock.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    Error, Result,
    learner::{ppo::Losses, settings::Settings},
    model::{Model, network::Network, policy::Policy},
    protocol::wire::Work,
    sampler::{sampling::Sampling, trajectory_buffer::TrajectoryBuffer},
};

/// Trajectory buffers per lane: one is filled while the other is read.
const BUFFERS_PER_LANE: usize = 2;
/// Buffers of weights: one is read while the other is written.
pub(super) const WEIGHTS: usize = 2;

/// Data sets: one is trained on while the other is filled.
pub(super) const DATASETS: usize = 2;

/// An order to sample.
#[derive(Debug)]
pub(crate) struct Order {
    pub(super) network: Network,
    pub(super) work: Work,
    pub(super) seed: u64,
    /// The data set for the collected steps.
    pub(super) dataset: usize,
}

impl Order {
    /// An order for a policy.
    pub(crate) fn new(policy: &Policy, work: Work, seed: u64) -> Result<Self> {
        Ok(Self {
            network: Network::new(policy)?,
            work,
            seed,
            dataset: 0,
        })
    }

    /// Whether the order collects steps.
    pub(super) const fn records_steps(&self) -> bool {
        matches!(self.work, Work::Collect { .. })
    }

    /// Number of steps to collect.
    pub(super) const fn frame_count(&self) -> usize {
        match self.work {
            Work::Collect { frames } => frames,
            Work::Evaluate { .. } => 0,
        }
    }

    /// Maximum steps to collect of one environment.
    pub(super) const fn max_frames_per_env(&self, sampling: &Sampling) -> usize {
        share_of(self.frame_count(), sampling.environment_count(), 0)
    }

    /// Steps per row of a trajectory buffer.
    pub(super) fn buffer_columns(&self, sampling: &Sampling) -> usize {
        self.max_frames_per_env(sampling).min(sampling.rollout)
    }
}

/// The exchange of a split's rollout worker and inference worker: a place per environment.
#[derive(Debug, Default)]
pub(super) struct ActionExchange {
    /// The places that wait for an action.
    pub(super) live: Vec<usize>,
    /// The observations.
    pub(super) observations: Vec<f32>,
    /// Uniform numbers in 0..1 that select the actions.
    pub(super) draws: Vec<f64>,
    /// The actions.
    pub(super) actions: Vec<u8>,
    /// Log probabilities of the actions.
    pub(super) log_probabilities: Vec<f32>,
}

impl ActionExchange {
    /// Resizes the exchange; no place waits.
    pub(super) fn reset_shape(&mut self, environments: usize, width: usize) {
        self.live.clear();
        self.observations.resize(environments * width, 0.0);
        self.draws.resize(environments, 0.0);
        self.actions.resize(environments, 0);
        self.log_probabilities.resize(environments, 0.0);
    }
}

/// The counts of a split.
#[derive(Debug, Default)]
pub(super) struct SampleCounts {
    /// Returns of the ended episodes with their sort keys.
    pub(super) returns: Vec<(usize, f64)>,
    /// Number of steps.
    pub(super) frames: u64,
}

impl SampleCounts {
    /// Adds other counts.
    pub(super) fn add_counts(&mut self, other: Self) {
        self.frames += other.frames;
        self.returns.extend(other.returns);
    }

    /// The returns in the order of their keys.
    pub(super) fn sorted_returns(mut self) -> Vec<f64> {
        self.returns.sort_by_key(|(key, _)| *key);
        self.returns.into_iter().map(|(_, value)| value).collect()
    }
}

/// A collected data set.
#[derive(Debug)]
pub(crate) struct Dataset {
    /// Number of its buffer.
    pub(crate) number: usize,
    /// Number of steps.
    pub(crate) frames: u64,
    /// Returns of the ended episodes.
    pub(crate) returns: Vec<f64>,
}

/// A training batch and its result.
#[derive(Debug)]
pub(crate) struct TrainingBatch {
    /// The model to train.
    pub(crate) model: Model,
    /// The settings.
    pub(crate) settings: Settings,
    /// Progress of the training, in 0..=1.
    pub(crate) progress: f64,
    /// Seed of all randomness.
    pub(crate) seed: u64,
    /// Number of gradient steps made.
    pub(crate) steps: u64,
    /// Mean losses of these steps.
    pub(crate) losses: Losses,
}

/// All shared buffers.
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
        shared.blocks = default_mutexes(splits * shared.lane_count() * BUFFERS_PER_LANE);
        shared
    }

    /// The environments of a split.
    pub(super) const fn split_environments(&self, split: usize) -> Range<usize> {
        let size = self.sampling.split_size();
        split * size..(split + 1) * size
    }

    /// Lanes of a split: buffers that are filled at a time, one for all environments or one for
    /// each.
    pub(super) const fn lane_count(&self) -> usize {
        self.sampling.split_size() / self.rows_per_buffer()
    }

    /// Environments per trajectory buffer.
    pub(super) const fn rows_per_buffer(&self) -> usize {
        if self.sampling.batched_sampling {
            self.sampling.split_size()
        } else {
            1
        }
    }

    /// The lane and the row of an environment of a split.
    pub(super) const fn lane_and_row(&self, place: usize) -> (usize, usize) {
        (
            place / self.rows_per_buffer(),
            place % self.rows_per_buffer(),
        )
    }

    /// The trajectory buffers of a lane.
    pub(super) fn lane_buffers(&self, split: usize, lane: usize) -> Vec<usize> {
        let first = (split * self.lane_count() + lane) * BUFFERS_PER_LANE;
        (first..first + BUFFERS_PER_LANE).collect()
    }

    /// The split and the lane of a trajectory buffer.
    pub(super) const fn buffer_owner(&self, block: usize) -> (usize, usize) {
        let lane = block / BUFFERS_PER_LANE;
        (lane / self.lane_count(), lane % self.lane_count())
    }

    /// The rollout worker of a split.
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

    /// A data set with one row per environment.
    pub(super) fn lock_dataset(&self, dataset: usize) -> MutexGuard<'_, TrajectoryBuffer> {
        lock_unpoisoned(&self.datasets[dataset])
    }

    /// The training batch.
    pub(super) fn lock_batch(&self) -> MutexGuard<'_, Option<TrainingBatch>> {
        lock_unpoisoned(&self.lesson)
    }

    /// Writes weights to a buffer.
    pub(super) fn write_weights(&self, buffer: usize, policy: &Policy) {
        *lock_unpoisoned(&self.weights[buffer]) = Some(policy.clone());
    }

    /// The weights in a buffer.
    pub(super) fn lock_weights(&self, buffer: usize) -> MutexGuard<'_, Option<Policy>> {
        lock_unpoisoned(&self.weights[buffer])
    }

    /// Records the error of a component.
    pub(super) fn set_failure(&self, error: Error) {
        *lock_unpoisoned(&self.failure) = Some(error);
    }

    /// The error of a component.
    pub(super) fn take_failure(&self) -> Option<Error> {
        lock_unpoisoned(&self.failure).take()
    }
}

fn default_mutexes<T: Default>(number: usize) -> Vec<Mutex<T>> {
    (0..number).map(|_| Mutex::default()).collect()
}

/// Locks a mutex. Data of a panicked component is not used again.
fn lock_unpoisoned<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The share of one part of a total; the first parts get the remainder.
pub(super) const fn share_of(total: usize, parts: usize, part: usize) -> usize {
    total / parts + (part < total % parts) as usize
}
