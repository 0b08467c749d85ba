//! Playing episodes with a policy.

use rand::Rng;

use crate::{
    cartpole::{CartPole, Ending, Observation},
    policy::Policy,
};

/// Consecutive steps of one episode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trajectory {
    /// What was seen before each step, and after the last one: one more than there are steps.
    pub observations: Vec<Observation>,
    /// What was done.
    pub actions: Vec<u8>,
    /// Logarithm of the probability that the policy gave to each action.
    pub log_probabilities: Vec<f32>,
    /// Whether the pole fell at the end. Otherwise the future beyond the last observation still has
    /// a value.
    pub terminated: bool,
}

/// What collecting produced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rollout {
    /// The steps, episode by episode; the last may be cut.
    pub trajectories: Vec<Trajectory>,
    /// Returns of the episodes that ended.
    pub returns: Vec<f64>,
}

/// Plays with drawn actions until there are `frames` steps.
pub fn collect(policy: &Policy, frames: usize, rng: &mut impl Rng) -> Rollout {
    let mut scratch = policy.scratch();
    let mut rollout = Rollout::default();
    let mut left = frames;
    while left > 0 {
        let mut environment = CartPole::reset(rng);
        let mut trajectory = Trajectory {
            observations: vec![environment.observation()],
            ..Trajectory::default()
        };
        while left > 0 {
            let (action, log_probability) =
                policy.sample(&environment.observation(), &mut scratch, rng);
            let ending = environment.step(action == 1);
            left -= 1;
            trajectory.actions.push(action);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "frames are stored in single precision"
            )]
            trajectory.log_probabilities.push(log_probability as f32);
            trajectory.observations.push(environment.observation());
            if let Some(ending) = ending {
                trajectory.terminated = ending == Ending::Terminated;
                rollout.returns.push(f64::from(environment.steps()));
                break;
            }
        }
        rollout.trajectories.push(trajectory);
    }
    rollout
}

/// Plays whole episodes with the likelier actions; returns the return of each.
pub fn evaluate(policy: &Policy, episodes: usize, rng: &mut impl Rng) -> Vec<f64> {
    let mut scratch = policy.scratch();
    let mut play = || {
        let mut environment = CartPole::reset(rng);
        while environment
            .step(policy.greedy(&environment.observation(), &mut scratch) == 1)
            .is_none()
        {}
        f64::from(environment.steps())
    };
    (0..episodes).map(|_| play()).collect()
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn collecting_gives_exactly_the_frames_asked_for() {
        let mut rng = StdRng::seed_from_u64(5);
        let policy = Policy::random(&mut rng);
        let rollout = collect(&policy, 300, &mut rng);
        let steps: usize = rollout
            .trajectories
            .iter()
            .map(|trajectory| trajectory.actions.len())
            .sum();
        assert_eq!(steps, 300);
        for trajectory in &rollout.trajectories {
            assert_eq!(trajectory.observations.len(), trajectory.actions.len() + 1);
            assert_eq!(trajectory.log_probabilities.len(), trajectory.actions.len());
        }
        let ended = rollout
            .trajectories
            .iter()
            .filter(|trajectory| trajectory.terminated)
            .count();
        assert_eq!(ended, rollout.returns.len());
    }

    #[test]
    fn the_same_seed_plays_the_same_game() {
        let policy = Policy::random(&mut StdRng::seed_from_u64(5));
        let play = |seed| collect(&policy, 100, &mut StdRng::seed_from_u64(seed));
        assert_eq!(play(1), play(1));
        assert_ne!(play(1), play(2));
    }

    #[test]
    fn evaluating_plays_whole_episodes() {
        let mut rng = StdRng::seed_from_u64(5);
        let returns = evaluate(&Policy::random(&mut rng), 10, &mut rng);
        assert_eq!(returns.len(), 10);
        assert!(returns.iter().all(|value| (1.0..=500.0).contains(value)));
    }
}
