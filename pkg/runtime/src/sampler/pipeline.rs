use super::{Maker, Sampler, gymnasium, running::Running, shared::Order};
use crate::{
    Result,
    policy::Policy,
    rollout::{Evaluation, Rollout},
    sampling::Sampling,
    wire::Work,
};

/// Rollout workers, inference workers and a batcher. They are there from the first order on, until it rests or is dropped.
pub struct Pipeline {
    sampling: Sampling,
    maker: Maker,
    running: Option<Running>,
}

impl Pipeline {
    /// One that plays in Gymnasium's environments.
    pub fn new(sampling: Sampling) -> Result<Self> {
        Self::with(sampling, gymnasium())
    }

    /// One that plays in environments of another make.
    pub fn with(sampling: Sampling, maker: Maker) -> Result<Self> {
        sampling.check()?;
        Ok(Self {
            sampling,
            maker,
            running: None,
        })
    }

    /// Has an order carried out.
    fn run<T>(
        &mut self,
        policy: &Policy,
        work: Work,
        seed: u64,
        done: impl FnOnce(&mut Running) -> T,
    ) -> Result<T> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => Running::start(&self.sampling, &self.maker, false)?,
        };
        running.begin(Order::new(policy, work, seed)?);
        running.finish()?;
        let done = done(&mut running);
        // One that has failed is dropped; the next order starts another.
        self.running = Some(running);
        Ok(done)
    }

    /// Trajectory buffers that somebody has.
    #[cfg(test)]
    pub(super) fn lent(&self) -> usize {
        self.running.as_ref().map_or(0, Running::lent)
    }
}

impl Sampler for Pipeline {
    fn collect(&mut self, policy: &Policy, frames: usize, seed: u64) -> Result<Rollout> {
        let work = Work::Collect { frames };
        self.run(policy, work, seed, |running| running.collected())
    }

    fn evaluate(&mut self, policy: &Policy, episodes: usize, seed: u64) -> Result<Evaluation> {
        let work = Work::Evaluate { episodes };
        self.run(policy, work, seed, |running| running.evaluated())
    }

    fn rest(&mut self) {
        self.running = None;
    }
}
