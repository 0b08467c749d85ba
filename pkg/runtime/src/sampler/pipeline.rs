use super::{
    Maker, Sampler,
    block::Played,
    gymnasium,
    running::Running,
    shared::{Order, Tally},
};
use crate::{
    Result,
    network::Network,
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

    fn run(&mut self, policy: &Policy, work: Work, seed: u64) -> Result<(Vec<Played>, Tally)> {
        let order = Order {
            network: Network::new(policy)?,
            work,
            seed,
        };
        let mut running = match self.running.take() {
            Some(running) => running,
            None => Running::start(&self.sampling, &self.maker)?,
        };
        let done = running.run(order)?;
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
        let (played, tally) = self.run(policy, work, seed)?;
        Ok(Rollout {
            trajectories: played
                .into_iter()
                .flat_map(|played| played.trajectories)
                .collect(),
            returns: tally.sorted(),
        })
    }

    fn evaluate(&mut self, policy: &Policy, episodes: usize, seed: u64) -> Result<Evaluation> {
        let work = Work::Evaluate { episodes };
        let (_, tally) = self.run(policy, work, seed)?;
        Ok(Evaluation {
            frames: tally.frames,
            returns: tally.sorted(),
        })
    }

    fn rest(&mut self) {
        self.running = None;
    }
}
