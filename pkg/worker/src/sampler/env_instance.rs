use std::sync::Arc;

use rand::rngs::StdRng;

use crate::environment::{Acrobot, CartPole, Ending, Episode, Game, World};

/// Creates an environment in which an episode begins.
pub type EnvFactory = Arc<dyn Fn(Game, &mut StdRng) -> Box<dyn EnvInstance> + Send + Sync>;

/// An environment in the middle of an episode.
pub trait EnvInstance: Send {
    /// Begins another episode.
    fn reset(&mut self, rng: &mut StdRng);

    /// Writes the current observation.
    fn observe(&self, seen: &mut [f32]);

    /// Performs one step; returns the reward and the end of the episode, if any.
    fn step(&mut self, action: u8) -> (f64, Option<Ending>);

    /// Return of the episode so far.
    fn total_reward(&self) -> f64;
}

impl<W: World + Send> EnvInstance for Episode<W> {
    fn reset(&mut self, rng: &mut StdRng) {
        *self = Self::new(W::reset(rng));
    }

    fn observe(&self, seen: &mut [f32]) {
        seen.copy_from_slice(self.world.current_observation().as_ref());
    }

    fn step(&mut self, action: u8) -> (f64, Option<Ending>) {
        self.step(action)
    }

    fn total_reward(&self) -> f64 {
        self.total_reward()
    }
}

/// Creates Gymnasium's environments.
pub fn gymnasium_factory() -> EnvFactory {
    fn new_episode<W: World + Send + 'static>(rng: &mut StdRng) -> Box<dyn EnvInstance> {
        Box::new(Episode::new(W::reset(rng)))
    }
    Arc::new(|game, rng| match game {
        Game::CartPole => new_episode::<CartPole>(rng),
        Game::Acrobot => new_episode::<Acrobot>(rng),
    })
}
