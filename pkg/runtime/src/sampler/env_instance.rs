use std::sync::Arc;

use rand::rngs::StdRng;

use super::EnvFactory;
use crate::game::{Acrobot, CartPole, Ending, Episode, Game, MountainCar, World};

/// An environment in the middle of an episode, as a rollout worker knows it.
pub trait EnvInstance: Send {
    /// Begins another episode.
    fn reset(&mut self, rng: &mut StdRng);

    /// Tells what is seen now.
    fn observe(&self, seen: &mut [f32]);

    /// Goes on by one step; returns its reward, and how it ended the episode if it did.
    fn step(&mut self, action: u8) -> (f64, Option<Ending>);

    /// Sum of the rewards of the episode so far.
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

/// Makes the environments of Gymnasium.
pub fn gymnasium_factory() -> EnvFactory {
    fn new_episode<W: World + Send + 'static>(rng: &mut StdRng) -> Box<dyn EnvInstance> {
        Box::new(Episode::new(W::reset(rng)))
    }
    Arc::new(|game, rng| match game {
        Game::CartPole => new_episode::<CartPole>(rng),
        Game::Acrobot => new_episode::<Acrobot>(rng),
        Game::MountainCar => new_episode::<MountainCar>(rng),
    })
}
