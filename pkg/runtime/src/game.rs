//! The environments that can be trained in; each has the physics, the rewards and the endings of
//! Gymnasium's.

mod acrobot;
mod cartpole;
mod mountain_car;

use std::fmt;

use rand::Rng;
use serde::{Deserialize, Serialize};

pub use self::{acrobot::Acrobot, cartpole::CartPole, mountain_car::MountainCar};

/// Which environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Game {
    /// A pole to be kept upright on a cart.
    #[default]
    CartPole,
    /// Two links that hang, to be swung up.
    Acrobot,
    /// A car that is too weak for its hill.
    MountainCar,
}

/// What must be known of an environment to train in it.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Gymnasium's name.
    pub name: &'static str,
    /// Brings each number of an observation to about the same size, which training likes.
    pub scale: &'static [f64],
    /// Number of actions.
    pub actions: usize,
    /// Steps after which an episode is cut.
    pub max_steps: u32,
    /// Mean return over 100 episodes that counts as solved: Gymnasium's `reward_threshold`.
    pub threshold: f64,
}

impl Rules {
    /// Numbers of an observation.
    pub const fn observation_size(&self) -> usize {
        self.scale.len()
    }
}

impl Game {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::CartPole, Self::Acrobot, Self::MountainCar];

    /// What must be known of it.
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

    /// The one that Gymnasium calls so.
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
        Self::by_name(&name).ok_or_else(|| format!("there is no environment {name:?}"))
    }
}

impl From<Game> for String {
    fn from(game: Game) -> Self {
        game.name().to_owned()
    }
}

/// The physics of an environment; has no time limit.
///
/// The order of the operations is Gymnasium's, so that the numbers are too.
pub trait World: Sized {
    /// What the agent sees, in the single precision that Gymnasium gives.
    type Observation: AsRef<[f32]>;

    /// What must be known of it.
    const RULES: Rules;

    /// Draws the state that an episode starts in.
    fn reset(rng: &mut impl Rng) -> Self;

    /// What the agent sees now.
    fn current_observation(&self) -> Self::Observation;

    /// Goes on by one step with an action below `RULES.actions`; returns its reward, and whether it
    /// ended the episode.
    fn step(&mut self, action: u8) -> (f64, bool);
}

/// How an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The state has no future.
    Terminated,
    /// The time was over.
    Truncated,
}

/// One episode: a world with its time limit.
#[derive(Clone, Debug)]
pub struct Episode<W> {
    /// The world as it is now.
    pub world: W,
    steps: u32,
    total: f64,
}

impl<W: World> Episode<W> {
    /// An episode that starts here.
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

    /// Goes on by one step; returns its reward, and how it ended the episode if it did.
    pub fn step(&mut self, action: u8) -> (f64, Option<Ending>) {
        let (reward, terminated) = self.world.step(action);
        self.steps += 1;
        self.total += reward;
        // Terminated goes first: a pole that falls in the very last step has fallen.
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
        assert!(error.to_string().contains("no environment \"Pong-v5\""));
    }
}
