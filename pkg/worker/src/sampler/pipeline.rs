use crate::{
    Result,
    environment::{EnvFactory, cartpole_factory},
    model::policy::Policy,
    protocol::wire::Work,
    sampler::{
        rollout::{Evaluation, Rollout},
        running_pipeline::RunningPipeline,
        sampling::Sampling,
        shared_buffers::Order,
    },
};

/// Rollout workers, inference workers and a batcher. They start with the first order and end with
/// `stop_workers` or a drop.
pub struct Pipeline {
    sampling: Sampling,
    maker: EnvFactory,
    running: Option<RunningPipeline>,
}

impl Pipeline {
    /// A pipeline with the environment of Gymnasium.
    pub fn new(sampling: Sampling) -> Result<Self> {
        Self::with_factory(sampling, cartpole_factory())
    }

    /// A pipeline with other environments.
    pub fn with_factory(sampling: Sampling, maker: EnvFactory) -> Result<Self> {
        sampling.check()?;
        Ok(Self {
            sampling,
            maker,
            running: None,
        })
    }

    /// Runs an order to its end.
    fn run_order<T>(
        &mut self,
        policy: &Policy,
        work: Work,
        seed: u64,
        done: impl FnOnce(&mut RunningPipeline) -> T,
    ) -> Result<T> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => RunningPipeline::start(&self.sampling, &self.maker, false)?,
        };
        running.begin_order(Order::new(policy, work, seed)?);
        running.run_until_idle()?;
        let done = done(&mut running);
        // A failed pipeline is dropped; the next order starts another.
        self.running = Some(running);
        Ok(done)
    }

    /// Samples `frames` steps with drawn actions.
    pub fn collect(&mut self, policy: &Policy, frames: usize, seed: u64) -> Result<Rollout> {
        let work = Work::Collect { frames };
        self.run_order(policy, work, seed, |running| running.take_rollout())
    }

    /// Plays whole episodes with the most likely actions.
    pub fn evaluate(&mut self, policy: &Policy, episodes: usize, seed: u64) -> Result<Evaluation> {
        let work = Work::Evaluate { episodes };
        self.run_order(policy, work, seed, |running| running.take_evaluation())
    }

    /// Releases threads and memory; the next call starts them again.
    pub fn stop_workers(&mut self) {
        self.running = None;
    }
}
