use std::sync::Arc;

use rand::rngs::StdRng;

use super::Maker;
use crate::game::{Acrobot, CartPole, Ending, Episode, Game, MountainCar, World};

/// An environment in the middle of an episode, as a rollout worker knows it.
pub trait Play: Send {
    /// Begins another episode.
    fn reset(&mut self, rng: &mut StdRng);

    /// Tells what is seen now.
    fn observe(&self, seen: &mut [f32]);

    /// Goes on by one step; returns its reward, and how it ended the episode if it did.
    fn step(&mut self, action: u8) -> (f64, Option<Ending>);

    /// Sum of the rewards of the episode so far.
    fn total(&self) -> f64;
}

impl<W: World + Send> Play for Episode<W> {
    fn reset(&mut self, rng: &mut StdRng) {
        *self = Self::new(W::reset(rng));
    }

    fn observe(&self, seen: &mut [f32]) {
        seen.copy_from_slice(self.world.observation().as_ref());
    }

    fn step(&mut self, action: u8) -> (f64, Option<Ending>) {
        self.step(action)
    }

    fn total(&self) -> f64 {
        self.total()
    }
}

/// Makes the environments of Gymnasium.
pub fn gymnasium() -> Maker {
    fn begin<W: World + Send + 'static>(rng: &mut StdRng) -> Box<dyn Play> {
        Box::new(Episode::new(W::reset(rng)))
    }
    Arc::new(|game, rng| match game {
        Game::CartPole => begin::<CartPole>(rng),
        Game::Acrobot => begin::<Acrobot>(rng),
        Game::MountainCar => begin::<MountainCar>(rng),
    })
}
