use std::{array, f64::consts::PI};

use rand::{Rng, RngExt};

use crate::environment::world::{Rules, World};

const GRAVITY: f64 = 9.8;
/// Length of the first link; the length of the second has no effect.
const LENGTH: f64 = 1.0;
/// Mass of each link.
const MASS: f64 = 1.0;
/// Distance from the joint to the center of mass of each link.
const CENTER: f64 = 0.5;
/// Moment of inertia of each link.
const INERTIA: f64 = 1.0;
const MAX_VELOCITY: [f64; 2] = [4.0 * PI, 9.0 * PI];
/// Time step in seconds.
const DT: f64 = 0.2;

/// Two linked bars that must swing above a line. The action is the torque on the joint: -1 (0), 0
/// (1) or 1 (2). State: angle of the first link, relative angle of the second, and their
/// velocities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Acrobot(pub [f64; 4]);

impl World for Acrobot {
    type Observation = [f32; 6];

    const RULES: Rules = Rules {
        name: "Acrobot-v1",
        scale: &[1.0, 1.0, 1.0, 1.0, 0.3, 0.15],
        actions: 3,
        max_steps: 500,
        threshold: -100.0,
    };

    #[expect(
        clippy::cast_possible_truncation,
        reason = "Gymnasium rounds the first state to single precision"
    )]
    fn reset(rng: &mut impl Rng) -> Self {
        Self(array::from_fn(|_| {
            f64::from(rng.random_range(-0.1..0.1) as f32)
        }))
    }

    fn current_observation(&self) -> [f32; 6] {
        let [first, second, first_velocity, second_velocity] = self.0;
        let exact = [
            first.cos(),
            first.sin(),
            second.cos(),
            second.sin(),
            first_velocity,
            second_velocity,
        ];
        #[expect(
            clippy::cast_possible_truncation,
            reason = "Gymnasium rounds observations to single precision"
        )]
        exact.map(|value| value as f32)
    }

    fn step(&mut self, action: u8) -> (f64, bool) {
        let torque = f64::from(action) - 1.0;
        let [first, second, first_velocity, second_velocity] = integrate_step(self.0, torque);
        self.0 = [
            wrap_angle(first),
            wrap_angle(second),
            first_velocity.clamp(-MAX_VELOCITY[0], MAX_VELOCITY[0]),
            second_velocity.clamp(-MAX_VELOCITY[1], MAX_VELOCITY[1]),
        ];
        let [first, second, ..] = self.0;
        let up = -first.cos() - (second + first).cos() > 1.0;
        (if up { 0.0 } else { -1.0 }, up)
    }
}

/// One step of the fourth-order Runge-Kutta method.
fn integrate_step(state: [f64; 4], torque: f64) -> [f64; 4] {
    let along = |slope: &[f64; 4], time: f64| array::from_fn(|i| state[i] + time * slope[i]);
    let k1 = state_derivative(state, torque);
    let k2 = state_derivative(along(&k1, DT / 2.0), torque);
    let k3 = state_derivative(along(&k2, DT / 2.0), torque);
    let k4 = state_derivative(along(&k3, DT), torque);
    let sum = array::from_fn(|i| k1[i] + 2.0 * k2[i] + 2.0 * k3[i] + k4[i]);
    along(&sum, DT / 6.0)
}

/// Derivative of the state, by the equations of the book of Sutton and Barto.
fn state_derivative([first, second, first_dot, second_dot]: [f64; 4], torque: f64) -> [f64; 4] {
    let (sin, cos) = (second.sin(), second.cos());
    let d1 = MASS * (CENTER * CENTER)
        + MASS * (LENGTH * LENGTH + CENTER * CENTER + 2.0 * LENGTH * CENTER * cos)
        + INERTIA
        + INERTIA;
    let d2 = MASS * (CENTER * CENTER + LENGTH * CENTER * cos) + INERTIA;
    let phi2 = MASS * CENTER * GRAVITY * (first + second - PI / 2.0).cos();
    let phi1 = -MASS * LENGTH * CENTER * (second_dot * second_dot) * sin
        - 2.0 * MASS * LENGTH * CENTER * second_dot * first_dot * sin
        + (MASS * CENTER + MASS * LENGTH) * GRAVITY * (first - PI / 2.0).cos()
        + phi2;
    let second_acc =
        (torque + d2 / d1 * phi1 - MASS * LENGTH * CENTER * (first_dot * first_dot) * sin - phi2)
            / (MASS * (CENTER * CENTER) + INERTIA - d2 * d2 / d1);
    let first_acc = -(d2 * second_acc + phi1) / d1;
    [first_dot, second_dot, first_acc, second_acc]
}

/// Wraps an angle to -π..π.
fn wrap_angle(mut angle: f64) -> f64 {
    while angle > PI {
        angle -= 2.0 * PI;
    }
    while angle < -PI {
        angle += 2.0 * PI;
    }
    angle
}
