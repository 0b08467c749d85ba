use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    environment::{Ending, EnvFactory, EnvInstance, mix_seeds},
    protocol::wire::Work,
    sampler::{
        sampling::Sampling,
        shared_buffers::{Order, share_of},
    },
};

/// An environment and its share of an order.
pub(super) struct EnvRunner {
    play: Box<dyn EnvInstance>,
    rng: StdRng,
    /// Steps or episodes left.
    left: usize,
    /// The environment or its episode: sorts the returns and seeds the generator.
    key: usize,
}

impl EnvRunner {
    /// A runner with its share of the order; none if the share is empty.
    pub(super) fn new(
        environment: usize,
        order: &Order,
        sampling: &Sampling,
        maker: &EnvFactory,
    ) -> Option<Self> {
        let total = match order.work {
            Work::Collect { frames } => frames,
            Work::Evaluate { episodes } => episodes,
        };
        let left = share_of(total, sampling.environment_count(), environment);
        (left > 0).then(|| {
            let mut rng = new_generator(order, environment);
            Self {
                play: maker(&mut rng),
                rng,
                left,
                key: environment,
            }
        })
    }

    /// Whether steps or episodes are left.
    pub(super) const fn has_more(&self) -> bool {
        self.left > 0
    }

    /// Writes the current observation.
    pub(super) fn observe(&self, seen: &mut [f32]) {
        self.play.observe(seen);
    }

    /// The uniform number that selects the next action.
    pub(super) fn draw_number(&mut self) -> f64 {
        self.rng.random()
    }

    /// Performs one step.
    pub(super) fn step(&mut self, action: u8) -> (f64, Option<Ending>) {
        self.play.step(action)
    }

    /// Finishes a step and begins the next episode if one ended. Returns the return of an ended
    /// episode and its sort key.
    pub(super) fn finish_step(
        &mut self,
        ended: bool,
        order: &Order,
        sampling: &Sampling,
    ) -> Option<(usize, f64)> {
        let ended = ended.then(|| (self.key, self.play.total_reward()));
        match order.work {
            Work::Collect { .. } => self.left -= 1,
            Work::Evaluate { .. } if ended.is_some() => {
                self.left -= 1;
                self.key += sampling.environment_count();
                self.rng = new_generator(order, self.key);
            }
            Work::Evaluate { .. } => {}
        }
        if ended.is_some() && self.has_more() {
            self.play.reset(&mut self.rng);
        }
        ended
    }
}

fn new_generator(order: &Order, key: usize) -> StdRng {
    StdRng::seed_from_u64(mix_seeds(order.seed, key as u64))
}
