//! The environments, with the physics, rewards and episode ends of Gymnasium.

mod acrobot;
mod cartpole;
mod mountain_car;

use std::fmt;

use rand::Rng;
use serde::{Deserialize, Serialize};

pub use self::{acrobot::Acrobot, cartpole::CartPole, mountain_car::MountainCar};

/// An environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Game {
    /// Balance a pole on a cart.
    #[default]
    CartPole,
    /// Swing up two linked bars.
    Acrobot,
    /// Drive an underpowered car up a hill.
    MountainCar,
}

/// The constants of an environment.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Gymnasium's name.
    pub name: &'static str,
    /// Scales each number of an observation to about the same size for training.
    pub scale: &'static [f64],
    /// Number of actions.
    pub actions: usize,
    /// Maximum steps of an episode.
    pub max_steps: u32,
    /// Mean return over 100 episodes that counts as solved: Gymnasium's `reward_threshold`.
    pub threshold: f64,
}

impl Rules {
    /// Length of an observation.
    pub const fn observation_size(&self) -> usize {
        self.scale.len()
    }
}

impl Game {
    /// All environments.
    pub const ALL: [Self; 3] = [Self::CartPole, Self::Acrobot, Self::MountainCar];

    /// The constants of this environment.
    pub const fn rules(self) -> &'static Rules {
        match self {
            Self::CartPole => &CartPole::RULES,
            Self::Acrobot => &Acrobot::RULES,
            Self::MountainCar => &MountainCar::RULES,
        }
    }

    /// Gymnasium's name.
    pub const fn name(self) -> &'static str {
        self.rules().name
    }

    /// Finds an environment by Gymnasium's name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|game| game.name() == name)
    }
}

impl fmt::Display for Game {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl TryFrom<String> for Game {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::by_name(&name).ok_or_else(|| format!("unknown environment {name:?}"))
    }
}

impl From<Game> for String {
    fn from(game: Game) -> Self {
        game.name().to_owned()
    }
}

/// The physics of an environment, without time limit.
///
/// The order of the operations is Gymnasium's, so that the results are equal.
pub trait World: Sized {
    /// The observation, in the single precision of Gymnasium.
    type Observation: AsRef<[f32]>;

    /// The constants of the environment.
    const RULES: Rules;

    /// Draws the first state of an episode.
    fn reset(rng: &mut impl Rng) -> Self;

    /// The observation of the current state.
    fn current_observation(&self) -> Self::Observation;

    /// Performs one step with an action below `RULES.actions`; returns the reward and whether the
    /// episode terminated.
    fn step(&mut self, action: u8) -> (f64, bool);
}

/// How an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A terminal state: no future rewards.
    Terminated,
    /// The time limit.
    Truncated,
}

/// An episode: a world with a time limit.
#[derive(Clone, Debug)]
pub struct Episode<W> {
    /// The current state.
    pub world: W,
    steps: u32,
    total: f64,
}

impl<W: World> Episode<W> {
    /// An episode that starts in this state.
    pub const fn new(world: W) -> Self {
        Self {
            world,
            steps: 0,
            total: 0.0,
        }
    }

    /// Steps made so far.
    pub const fn steps(&self) -> u32 {
        self.steps
    }

    /// Sum of the rewards so far.
    pub const fn total_reward(&self) -> f64 {
        self.total
    }

    /// Performs one step; returns the reward and the end of the episode, if any.
    pub fn step(&mut self, action: u8) -> (f64, Option<Ending>) {
        let (reward, terminated) = self.world.step(action);
        self.steps += 1;
        self.total += reward;
        // Termination wins over truncation in the last step.
        let ending = if terminated {
            Some(Ending::Terminated)
        } else {
            (self.steps >= W::RULES.max_steps).then_some(Ending::Truncated)
        };
        (reward, ending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn game_is_serialized_by_gymnasium_name() {
        for game in Game::ALL {
            let text = serde_json::to_string(&game).unwrap();
            assert_eq!(text, format!("\"{game}\""));
            assert_eq!(serde_json::from_str::<Game>(&text).unwrap(), game);
        }
        let error = serde_json::from_str::<Game>("\"Pong-v5\"").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("unknown environment \"Pong-v5\"")
        );
    }
}
