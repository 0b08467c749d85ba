//! `CartPole` with the physics and the endings of Gymnasium's CartPole-v1.

use rand::{Rng, RngExt};

const GRAVITY: f64 = 9.8;
const MASS_CART: f64 = 1.0;
const MASS_POLE: f64 = 0.1;
const TOTAL_MASS: f64 = MASS_POLE + MASS_CART;
/// Half of the pole's length.
const LENGTH: f64 = 0.5;
const POLE_MASS_LENGTH: f64 = MASS_POLE * LENGTH;
const FORCE: f64 = 10.0;
/// Seconds between two states.
const TAU: f64 = 0.02;
const THETA_LIMIT: f64 = 12.0 * 2.0 * std::f64::consts::PI / 360.0;
const X_LIMIT: f64 = 2.4;
/// Steps after which an episode is cut; also the largest return, as every step is worth 1.
pub const MAX_STEPS: u32 = 500;

/// What the agent sees: position, velocity, angle, angular velocity, in the single precision that
/// Gymnasium gives.
pub type Observation = [f32; 4];

/// How an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The pole fell or the cart left the track.
    Terminated,
    /// The time was over with the pole still up.
    Truncated,
}

/// One episode.
#[derive(Clone, Debug, PartialEq)]
pub struct CartPole {
    state: [f64; 4],
    steps: u32,
}

impl CartPole {
    /// Starts an episode near the upright position.
    pub fn reset(rng: &mut impl Rng) -> Self {
        Self::from_state(std::array::from_fn(|_| rng.random_range(-0.05..0.05)))
    }

    /// Starts an episode from a given position, velocity, angle and angular velocity.
    pub const fn from_state(state: [f64; 4]) -> Self {
        Self { state, steps: 0 }
    }

    /// What the agent sees now.
    pub fn observation(&self) -> Observation {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "Gymnasium rounds observations to single precision"
        )]
        self.state.map(|value| value as f32)
    }

    /// The exact state.
    pub const fn state(&self) -> &[f64; 4] {
        &self.state
    }

    /// Steps made so far: the return of the episode.
    pub const fn steps(&self) -> u32 {
        self.steps
    }

    /// Pushes the cart to the right or to the left; says if that ended the episode.
    ///
    /// The order of the operations is Gymnasium's, so that the numbers are too.
    pub fn step(&mut self, right: bool) -> Option<Ending> {
        let [x, x_dot, theta, theta_dot] = self.state;
        let force = if right { FORCE } else { -FORCE };
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
        self.steps += 1;
        let [x, _, theta, _] = self.state;
        // Terminated goes first: a pole that falls in the very last step has fallen.
        if x.abs() > X_LIMIT || theta.abs() > THETA_LIMIT {
            Some(Ending::Terminated)
        } else if self.steps >= MAX_STEPS {
            Some(Ending::Truncated)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests;
