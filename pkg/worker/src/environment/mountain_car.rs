use rand::{Rng, RngExt};

use crate::environment::world::{Rules, World};

const LEFT_WALL: f64 = -1.2;
const RIGHT_END: f64 = 0.6;
const GOAL: f64 = 0.5;
const MAX_SPEED: f64 = 0.07;
const FORCE: f64 = 0.001;
const GRAVITY: f64 = 0.0025;

/// A car in a valley that is pushed to the left (0), not at all (1) or to the right (2). State:
/// position, velocity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MountainCar(pub [f64; 2]);

impl World for MountainCar {
    type Observation = [f32; 2];

    const RULES: Rules = Rules {
        name: "MountainCar-v0",
        scale: &[3.0, 40.0],
        actions: 3,
        max_steps: 200,
        threshold: -110.0,
    };

    fn reset(rng: &mut impl Rng) -> Self {
        Self([rng.random_range(-0.6..-0.4), 0.0])
    }

    fn current_observation(&self) -> [f32; 2] {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "Gymnasium rounds observations to single precision"
        )]
        self.0.map(|value| value as f32)
    }

    fn step(&mut self, action: u8) -> (f64, bool) {
        let [position, velocity] = self.0;
        let push = (f64::from(action) - 1.0) * FORCE;
        let velocity =
            (velocity + (push + (3.0 * position).cos() * -GRAVITY)).clamp(-MAX_SPEED, MAX_SPEED);
        let position = (position + velocity).clamp(LEFT_WALL, RIGHT_END);
        let stopped = position <= LEFT_WALL && velocity < 0.0;
        let velocity = if stopped { 0.0 } else { velocity };
        self.0 = [position, velocity];
        (-1.0, position >= GOAL && velocity >= 0.0)
    }
}
