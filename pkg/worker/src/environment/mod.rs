//! The environments, with the physics, rewards and episode ends of Gymnasium.

pub(crate) mod acrobot;
pub(crate) mod cartpole;
pub(crate) mod game;
pub(crate) mod seeds;
pub(crate) mod world;

pub use acrobot::Acrobot;
pub use cartpole::CartPole;
pub use game::Game;
pub use world::{Ending, Episode, Rules, World};
