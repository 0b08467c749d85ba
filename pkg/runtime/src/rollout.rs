//! Playing episodes with a policy.

use rand::Rng;

use crate::{
    game::{Acrobot, CartPole, Ending, Episode, Game, MountainCar, World},
    policy::Policy,
};

/// Consecutive steps of one episode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trajectory {
    /// What was seen before each step, and after the last one, one observation after another: one
    /// more than there are steps.
    pub observations: Vec<f32>,
    /// What was done.
    pub actions: Vec<u8>,
    /// What each step brought.
    pub rewards: Vec<f32>,
    /// Logarithm of the probability that the policy gave to each action.
    pub log_probabilities: Vec<f32>,
    /// Whether the last state has no future. Otherwise what lies beyond the last observation still
    /// has a value.
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

/// What evaluating produced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// Return of each episode.
    pub returns: Vec<f64>,
    /// Steps made.
    pub frames: u64,
}

/// Plays with drawn actions until there are `frames` steps.
pub fn collect(policy: &Policy, frames: usize, rng: &mut impl Rng) -> Rollout {
    match policy.game() {
        Game::CartPole => collect_in::<CartPole>(policy, frames, rng),
        Game::Acrobot => collect_in::<Acrobot>(policy, frames, rng),
        Game::MountainCar => collect_in::<MountainCar>(policy, frames, rng),
    }
}

/// Plays whole episodes with the likelier actions.
pub fn evaluate(policy: &Policy, episodes: usize, rng: &mut impl Rng) -> Evaluation {
    match policy.game() {
        Game::CartPole => evaluate_in::<CartPole>(policy, episodes, rng),
        Game::Acrobot => evaluate_in::<Acrobot>(policy, episodes, rng),
        Game::MountainCar => evaluate_in::<MountainCar>(policy, episodes, rng),
    }
}

fn collect_in<W: World>(policy: &Policy, frames: usize, rng: &mut impl Rng) -> Rollout {
    let mut scratch = policy.scratch();
    let mut rollout = Rollout::default();
    let mut left = frames;
    while left > 0 {
        let mut episode = Episode::new(W::reset(rng));
        let mut observation = episode.world.observation();
        let mut trajectory = Trajectory::default();
        trajectory.observations.extend(observation.as_ref());
        while left > 0 {
            let (action, log_probability) = policy.sample(observation.as_ref(), &mut scratch, rng);
            let (reward, ending) = episode.step(action);
            left -= 1;
            observation = episode.world.observation();
            trajectory.observations.extend(observation.as_ref());
            trajectory.actions.push(action);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "frames are stored in single precision"
            )]
            {
                trajectory.rewards.push(reward as f32);
                trajectory.log_probabilities.push(log_probability as f32);
            }
            if let Some(ending) = ending {
                trajectory.terminated = ending == Ending::Terminated;
                rollout.returns.push(episode.total());
                break;
            }
        }
        rollout.trajectories.push(trajectory);
    }
    rollout
}

fn evaluate_in<W: World>(policy: &Policy, episodes: usize, rng: &mut impl Rng) -> Evaluation {
    let mut scratch = policy.scratch();
    let mut evaluation = Evaluation::default();
    for _ in 0..episodes {
        let mut episode = Episode::new(W::reset(rng));
        loop {
            let action = policy.greedy(episode.world.observation().as_ref(), &mut scratch);
            if let (_, Some(_)) = episode.step(action) {
                break;
            }
        }
        evaluation.returns.push(episode.total());
        evaluation.frames += u64::from(episode.steps());
    }
    evaluation
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn collecting_gives_exactly_the_frames_asked_for() {
        for game in Game::ALL {
            let mut rng = StdRng::seed_from_u64(5);
            let policy = Policy::random(game, &mut rng);
            let rollout = collect(&policy, 1300, &mut rng);
            let mut steps = 0;
            for trajectory in &rollout.trajectories {
                let length = trajectory.actions.len();
                let seen = (length + 1) * game.rules().observation();
                assert_eq!(trajectory.observations.len(), seen, "{game}");
                assert_eq!(trajectory.rewards.len(), length);
                assert_eq!(trajectory.log_probabilities.len(), length);
                steps += length;
            }
            assert_eq!(steps, 1300, "{game}");
            assert!(!rollout.returns.is_empty(), "{game}");
        }
    }

    #[test]
    fn returns_are_the_sums_of_the_rewards_of_episodes_that_ended() {
        let mut rng = StdRng::seed_from_u64(5);
        let rollout = collect(&Policy::random(Game::CartPole, &mut rng), 300, &mut rng);
        let sums = rollout
            .trajectories
            .iter()
            .filter(|trajectory| trajectory.terminated)
            .map(|trajectory| f64::from(trajectory.rewards.iter().sum::<f32>()));
        assert_eq!(sums.collect::<Vec<_>>(), rollout.returns);
    }

    #[test]
    fn the_same_seed_plays_the_same_game() {
        let policy = Policy::random(Game::Acrobot, &mut StdRng::seed_from_u64(5));
        let play = |seed| collect(&policy, 100, &mut StdRng::seed_from_u64(seed));
        assert_eq!(play(1), play(1));
        assert_ne!(play(1), play(2));
    }

    #[test]
    fn evaluating_plays_whole_episodes() {
        for (game, returns) in [
            (Game::CartPole, 1.0..=500.0),
            (Game::Acrobot, -500.0..=0.0),
            (Game::MountainCar, -200.0..=0.0),
        ] {
            let mut rng = StdRng::seed_from_u64(5);
            let policy = Policy::random(game, &mut rng);
            let evaluation = evaluate(&policy, 10, &mut rng);
            assert_eq!(evaluation.returns.len(), 10);
            assert!(
                evaluation
                    .returns
                    .iter()
                    .all(|value| returns.contains(value))
            );
            assert!((10..=10 * u64::from(game.rules().max_steps)).contains(&evaluation.frames));
        }
    }
}
