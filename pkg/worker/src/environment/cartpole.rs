use rand::{Rng, RngExt};

use crate::environment::world::{Rules, World};

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

/// A pole on a cart that is pushed to the left (0) or to the right (1). State: position, velocity,
/// angle, angular velocity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CartPole(pub [f64; 4]);

impl World for CartPole {
    type Observation = [f32; 4];

    const RULES: Rules = Rules {
        name: "CartPole-v1",
        scale: &[0.4, 0.5, 5.0, 0.5],
        actions: 2,
        max_steps: 500,
        threshold: 475.0,
    };

    fn reset(rng: &mut impl Rng) -> Self {
        Self(std::array::from_fn(|_| rng.random_range(-0.05..0.05)))
    }

    fn current_observation(&self) -> [f32; 4] {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "Gymnasium rounds observations to single precision"
        )]
        self.0.map(|value| value as f32)
    }

    fn step(&mut self, action: u8) -> (f64, bool) {
        let [x, x_dot, theta, theta_dot] = self.0;
        let force = if action == 1 { FORCE } else { -FORCE };
        let (sin, cos) = (theta.sin(), theta.cos());
        let temp = (force + POLE_MASS_LENGTH * (theta_dot * theta_dot) * sin) / TOTAL_MASS;
        let theta_acc = (GRAVITY * sin - cos * temp)
            / (LENGTH * (4.0 / 3.0 - MASS_POLE * (cos * cos) / TOTAL_MASS));
        let x_acc = temp - POLE_MASS_LENGTH * theta_acc * cos / TOTAL_MASS;
        self.0 = [
            x + TAU * x_dot,
            x_dot + TAU * x_acc,
            theta + TAU * theta_dot,
            theta_dot + TAU * theta_acc,
        ];
        let [x, _, theta, _] = self.0;
        (1.0, x.abs() > X_LIMIT || theta.abs() > THETA_LIMIT)
    }
}
