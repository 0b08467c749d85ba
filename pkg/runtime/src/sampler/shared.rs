//! What components share: buffers that are there from the start, each known by its number. What they hold of memory they have from the
//! beginning of an order on, and keep for the next ones. Whoever was told a number last has the buffer for itself, so nobody waits for its
//! lock.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{block::Block, share};
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
    pub(super) const fn collects(&self) -> bool {
        matches!(self.work, Work::Collect { .. })
    }

    /// Steps to record.
    pub(super) const fn frames(&self) -> usize {
        match self.work {
            Work::Collect { frames } => frames,
            Work::Evaluate { .. } => 0,
        }
    }

    /// Most steps to record of an environment.
    pub(super) const fn most(&self, sampling: &Sampling) -> usize {
        share(self.frames(), sampling.environments(), 0)
    }

    /// Steps of an environment that fit into a trajectory buffer.
    pub(super) fn columns(&self, sampling: &Sampling) -> usize {
        self.most(sampling).min(sampling.rollout)
    }

    /// Numbers of an observation.
    pub(super) const fn width(&self) -> usize {
        self.network.game().rules().observation()
    }
}

/// Where rollout and inference worker meet: a place for each environment of a split.
#[derive(Debug, Default)]
pub(super) struct Exchange {
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

impl Exchange {
    /// Has a place for each environment; nobody waits.
    pub(super) fn shape(&mut self, environments: usize, width: usize) {
        self.live.clear();
        self.observations.resize(environments * width, 0.0);
        self.draws.resize(environments, 0.0);
        self.actions.resize(environments, 0);
        self.log_probabilities.resize(environments, 0.0);
    }
}

/// What a split tells of what it did.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Returns of the episodes that ended, each with what it is sorted by.
    pub(super) returns: Vec<(usize, f64)>,
    /// Steps made.
    pub(super) frames: u64,
}

impl Tally {
    /// Takes another one in.
    pub(super) fn add(&mut self, other: Self) {
        self.frames += other.frames;
        self.returns.extend(other.returns);
    }

    /// The returns, sorted.
    pub(super) fn sorted(mut self) -> Vec<f64> {
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
pub(crate) struct Lesson {
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
pub(super) struct Shared {
    pub(super) sampling: Sampling,
    order: Mutex<Option<Arc<Order>>>,
    exchanges: Vec<Mutex<Exchange>>,
    tallies: Vec<Mutex<Tally>>,
    blocks: Vec<Mutex<Block>>,
    datasets: Vec<Mutex<Block>>,
    lesson: Mutex<Option<Lesson>>,
    weights: Vec<Mutex<Option<Policy>>>,
    failure: Mutex<Option<Error>>,
}

impl Shared {
    pub(super) fn new(sampling: Sampling) -> Self {
        let splits = sampling.splits();
        let mut shared = Self {
            sampling,
            order: Mutex::default(),
            exchanges: many(splits),
            tallies: many(splits),
            blocks: Vec::new(),
            datasets: many(DATASETS),
            lesson: Mutex::default(),
            weights: many(WEIGHTS),
            failure: Mutex::default(),
        };
        shared.blocks = many(splits * shared.lanes() * BUFFERS);
        shared
    }

    /// The environments of a split.
    pub(super) const fn environments(&self, split: usize) -> Range<usize> {
        let size = self.sampling.split_size();
        split * size..(split + 1) * size
    }

    /// Trajectory buffers that each split fills at a time: one for all of its environments, or one for each.
    pub(super) const fn lanes(&self) -> usize {
        self.sampling.split_size() / self.rows()
    }

    /// Environments that share a trajectory buffer.
    pub(super) const fn rows(&self) -> usize {
        if self.sampling.batched_sampling {
            self.sampling.split_size()
        } else {
            1
        }
    }

    /// The lane of an environment of a split, and its row in the trajectory buffer.
    pub(super) const fn place(&self, place: usize) -> (usize, usize) {
        (place / self.rows(), place % self.rows())
    }

    /// The trajectory buffers of a lane of a split.
    pub(super) fn buffers(&self, split: usize, lane: usize) -> Vec<usize> {
        let first = (split * self.lanes() + lane) * BUFFERS;
        (first..first + BUFFERS).collect()
    }

    /// The split, and its lane, that a trajectory buffer belongs to.
    pub(super) const fn owner(&self, block: usize) -> (usize, usize) {
        let lane = block / BUFFERS;
        (lane / self.lanes(), lane % self.lanes())
    }

    /// The worker that has a split.
    pub(super) const fn worker(&self, split: usize) -> usize {
        split / self.sampling.worker_num_splits
    }

    pub(super) fn publish(&self, order: Order) {
        *lock(&self.order) = Some(Arc::new(order));
    }

    pub(super) fn order(&self) -> Option<Arc<Order>> {
        lock(&self.order).clone()
    }

    pub(super) fn exchange(&self, split: usize) -> MutexGuard<'_, Exchange> {
        lock(&self.exchanges[split])
    }

    pub(super) fn tally(&self, split: usize) -> MutexGuard<'_, Tally> {
        lock(&self.tallies[split])
    }

    pub(super) fn block(&self, block: usize) -> MutexGuard<'_, Block> {
        lock(&self.blocks[block])
    }

    /// A data set: a row for each environment.
    pub(super) fn dataset(&self, dataset: usize) -> MutexGuard<'_, Block> {
        lock(&self.datasets[dataset])
    }

    /// What is to be learned.
    pub(super) fn lesson(&self) -> MutexGuard<'_, Option<Lesson>> {
        lock(&self.lesson)
    }

    /// Writes weights to a buffer.
    pub(super) fn write_weights(&self, buffer: usize, policy: &Policy) {
        match &mut *lock(&self.weights[buffer]) {
            Some(written) if written.game() == policy.game() => {
                written
                    .parameters_mut()
                    .copy_from_slice(policy.parameters());
            }
            empty => *empty = Some(policy.clone()),
        }
    }

    /// The weights of a buffer.
    pub(super) fn weights(&self, buffer: usize) -> MutexGuard<'_, Option<Policy>> {
        lock(&self.weights[buffer])
    }

    /// Notes why a component cannot do its part.
    pub(super) fn fail(&self, error: Error) {
        *lock(&self.failure) = Some(error);
    }

    /// Why a component could not do its part.
    pub(super) fn failure(&self) -> Option<Error> {
        lock(&self.failure).take()
    }

    /// Where the memory of trajectory buffers and data sets is.
    #[cfg(test)]
    pub(super) fn memory(&self) -> Vec<[(usize, usize); 7]> {
        let all = self.blocks.iter().chain(&self.datasets);
        all.map(|block| lock(block).memory()).collect()
    }

    /// Trajectory buffers that somebody has.
    #[cfg(test)]
    pub(super) fn lent(&self) -> usize {
        self.blocks.iter().filter(|block| lock(block).lent).count()
    }
}

fn many<T: Default>(number: usize) -> Vec<Mutex<T>> {
    (0..number).map(|_| Mutex::default()).collect()
}

/// What a component that panicked has left is not used any more.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
