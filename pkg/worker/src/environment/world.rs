//! The physics and the episodes of environments.

use rand::Rng;

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
