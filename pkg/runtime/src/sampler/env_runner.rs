use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{EnvFactory, EnvInstance, share_of, shared_buffers::Order};
use crate::{game::Ending, sampling::Sampling, server::mix_seeds, wire::Work};

/// An environment, with what it has to do of an order.
pub(super) struct EnvRunner {
    play: Box<dyn EnvInstance>,
    rng: StdRng,
    /// Steps to make, or episodes to play.
    left: usize,
    /// The environment, or the episode that it plays: what returns are sorted by, and what decides all that is random.
    key: usize,
}

impl EnvRunner {
    /// One that begins, if there is something to do.
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
                play: maker(order.network.game(), &mut rng),
                rng,
                left,
                key: environment,
            }
        })
    }

    /// Whether it has more to do.
    pub(super) const fn has_more(&self) -> bool {
        self.left > 0
    }

    /// Tells what is seen now.
    pub(super) fn observe(&self, seen: &mut [f32]) {
        self.play.observe(seen);
    }

    /// What decides the next action.
    pub(super) fn draw_number(&mut self) -> f64 {
        self.rng.random()
    }

    /// Makes a step.
    pub(super) fn step(&mut self, action: u8) -> (f64, Option<Ending>) {
        self.play.step(action)
    }

    /// Goes on after a step, to the next episode if that ended one; returns the return of that, and what it is sorted by.
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
