use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{Maker, Play, share, shared::Order};
use crate::{game::Ending, sampling::Sampling, server::mix, wire::Work};

/// An environment, with what it has to do of an order.
pub(super) struct Player {
    play: Box<dyn Play>,
    rng: StdRng,
    /// Steps to make, or episodes to play.
    left: usize,
    /// The environment, or the episode that it plays: what returns are sorted by, and what decides all that is random.
    key: usize,
}

impl Player {
    /// One that begins, if there is something to do.
    pub(super) fn new(
        environment: usize,
        order: &Order,
        sampling: &Sampling,
        maker: &Maker,
    ) -> Option<Self> {
        let total = match order.work {
            Work::Collect { frames } => frames,
            Work::Evaluate { episodes } => episodes,
        };
        let left = share(total, sampling.environments(), environment);
        (left > 0).then(|| {
            let mut rng = generator(order, environment);
            Self {
                play: maker(order.network.game(), &mut rng),
                rng,
                left,
                key: environment,
            }
        })
    }

    /// Whether it has more to do.
    pub(super) const fn goes_on(&self) -> bool {
        self.left > 0
    }

    /// Tells what is seen now.
    pub(super) fn observe(&self, seen: &mut [f32]) {
        self.play.observe(seen);
    }

    /// What decides the next action.
    pub(super) fn draw(&mut self) -> f64 {
        self.rng.random()
    }

    /// Makes a step.
    pub(super) fn step(&mut self, action: u8) -> (f64, Option<Ending>) {
        self.play.step(action)
    }

    /// Goes on after a step, to the next episode if that ended one; returns the return of that, and what it is sorted by.
    pub(super) fn next(
        &mut self,
        ended: bool,
        order: &Order,
        sampling: &Sampling,
    ) -> Option<(usize, f64)> {
        let ended = ended.then(|| (self.key, self.play.total()));
        match order.work {
            Work::Collect { .. } => self.left -= 1,
            Work::Evaluate { .. } if ended.is_some() => {
                self.left -= 1;
                self.key += sampling.environments();
                self.rng = generator(order, self.key);
            }
            Work::Evaluate { .. } => {}
        }
        if ended.is_some() && self.goes_on() {
            self.play.reset(&mut self.rng);
        }
        ended
    }
}

fn generator(order: &Order, key: usize) -> StdRng {
    StdRng::seed_from_u64(mix(order.seed, key as u64))
}
