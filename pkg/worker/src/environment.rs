//! The environment: Gymnasium's `CartPole-v1`, with its physics, rewards and episode ends.

use std::{array, sync::Arc};

use rand::{Rng, RngExt, rngs::StdRng};

/// Scales each number of an observation to about the same size for training.
pub const SCALE: [f64; OBSERVATION_SIZE] = [0.4, 0.5, 5.0, 0.5];
/// Length of an observation.
pub const OBSERVATION_SIZE: usize = 4;
/// Number of actions.
pub const ACTIONS: usize = 2;
/// Maximum steps of an episode.
pub const MAX_STEPS: u32 = 500;
/// Mean return over 100 episodes that counts as solved: Gymnasium's `reward_threshold`.
pub const THRESHOLD: f64 = 475.0;

const GRAVITY: f64 = 9.8;
const MASS_CART: f64 = 1.0;
const MASS_POLE: f64 = 0.1;
const TOTAL_MASS: f64 = MASS_POLE + MASS_CART;
/// Half of the pole's length.
const LENGTH: f64 = 0.5;
const POLE_MASS_LENGTH: f64 = MASS_POLE * LENGTH;
const FORCE: f64 = 10.0;
/// Time step in seconds.
const TAU: f64 = 0.02;
const THETA_LIMIT: f64 = 12.0 * 2.0 * std::f64::consts::PI / 360.0;
const X_LIMIT: f64 = 2.4;

/// How an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A terminal state: no future rewards.
    Terminated,
    /// The time limit.
    Truncated,
}

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

/// Creates an environment in which an episode begins.
pub type EnvFactory = Arc<dyn Fn(&mut StdRng) -> Box<dyn EnvInstance> + Send + Sync>;

/// Creates [`CartPole`] environments.
pub fn cartpole_factory() -> EnvFactory {
    Arc::new(|rng| Box::new(CartPole::random(rng)))
}

/// A pole on a cart that is pushed to the left (0) or to the right (1).
#[derive(Clone, Debug)]
pub struct CartPole {
    /// Position, velocity, angle, angular velocity.
    pub state: [f64; OBSERVATION_SIZE],
    steps: u32,
}

impl CartPole {
    /// An episode that starts in this state.
    pub const fn new(state: [f64; OBSERVATION_SIZE]) -> Self {
        Self { state, steps: 0 }
    }

    fn random(rng: &mut impl Rng) -> Self {
        Self::new(array::from_fn(|_| rng.random_range(-0.05..0.05)))
    }

    /// Moves cart and pole; the order of the operations is Gymnasium's, so that the results are
    /// equal.
    fn integrate(&mut self, action: u8) {
        let [x, x_dot, theta, theta_dot] = self.state;
        let force = if action == 1 { FORCE } else { -FORCE };
        let (sin, cos) = (theta.sin(), theta.cos());
        let temp = (force + POLE_MASS_LENGTH * (theta_dot * theta_dot) * sin) / TOTAL_MASS;
        let theta_acc = (GRAVITY * sin - cos * temp)
            / (LENGTH * (4.0 / 3.0 - MASS_POLE * (cos * cos) / TOTAL_MASS));
        let x_acc = temp - POLE_MASS_LENGTH * theta_acc * cos / TOTAL_MASS;
        self.state = [
            x + TAU * x_dot,
            x_dot + TAU * x_acc,
            theta + TAU * theta_dot,
            theta_dot + TAU * theta_acc,
        ];
    }
}

impl EnvInstance for CartPole {
    fn reset(&mut self, rng: &mut StdRng) {
        *self = Self::random(rng);
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "Gymnasium rounds observations to single precision"
    )]
    fn observe(&self, seen: &mut [f32]) {
        seen.copy_from_slice(&self.state.map(|value| value as f32));
    }

    fn step(&mut self, action: u8) -> (f64, Option<Ending>) {
        self.integrate(action);
        self.steps += 1;
        let [x, _, theta, _] = self.state;
        // Termination wins over truncation in the last step.
        let ending = if x.abs() > X_LIMIT || theta.abs() > THETA_LIMIT {
            Some(Ending::Terminated)
        } else {
            (self.steps >= MAX_STEPS).then_some(Ending::Truncated)
        };
        (1.0, ending)
    }

    /// Each step has the reward 1.
    fn total_reward(&self) -> f64 {
        f64::from(self.steps)
    }
}

/// Derives a seed from two numbers, with the finaliser of SplitMix64.
pub(crate) const fn mix_seeds(left: u64, right: u64) -> u64 {
    let mut value = left
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(right)
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
