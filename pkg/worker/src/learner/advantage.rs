//! Generalised advantage estimation: how much better an action was than the critic expected.

use crate::{
    Result,
    environment::OBSERVATION_SIZE,
    model::{network::Network, policy::Policy},
    sampler::rollout::Trajectory,
};

/// Scales rewards so that the values of the critic stay near 1.
const REWARD_SCALE: f64 = 0.02;

/// One training sample.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) observation: Box<[f32]>,
    pub(crate) action: u8,
    /// Of the action under the policy that collected it.
    pub(crate) log_probability: f64,
    /// Normalised over all samples of the update.
    pub(crate) advantage: f64,
    /// Target value of the critic.
    pub(crate) target: f64,
}

/// The frames of all trajectories as samples with normalised advantages.
pub(crate) fn build_samples(
    policy: &Policy,
    trajectories: &[Trajectory],
    discount: f64,
    trace: f64,
) -> Result<Vec<Sample>> {
    let network = Network::new(policy)?;
    let mut samples = Vec::new();
    for trajectory in trajectories {
        let observations = || trajectory.observations.chunks_exact(OBSERVATION_SIZE);
        let values = network.evaluate_states(observations())?;
        let advantages = compute_advantages(
            &values,
            &trajectory.rewards,
            trajectory.terminated,
            discount,
            trace,
        );
        for (step, (observation, advantage)) in observations().zip(advantages).enumerate() {
            samples.push(Sample {
                observation: observation.into(),
                action: trajectory.actions[step],
                log_probability: f64::from(trajectory.log_probabilities[step]),
                advantage,
                target: advantage + values[step],
            });
        }
    }
    normalise_advantages(&mut samples);
    Ok(samples)
}

/// The advantage of each step, given the critic's value of each observation including the last one.
fn compute_advantages(
    values: &[f64],
    rewards: &[f32],
    terminated: bool,
    discount: f64,
    trace: f64,
) -> Vec<f64> {
    let steps = rewards.len();
    let mut advantages = vec![0.0; steps];
    let mut running = 0.0;
    for step in (0..steps).rev() {
        // Only a terminated episode has no future value; a truncated one has.
        let next = if terminated && step == steps - 1 {
            0.0
        } else {
            values[step + 1]
        };
        let surprise = REWARD_SCALE * f64::from(rewards[step]) + discount * next - values[step];
        running = surprise + discount * trace * running;
        advantages[step] = running;
    }
    advantages
}

fn normalise_advantages(samples: &mut [Sample]) {
    let count = samples.len().max(1) as f64;
    let mean = samples.iter().map(|sample| sample.advantage).sum::<f64>() / count;
    let variance = samples
        .iter()
        .map(|sample| (sample.advantage - mean).powi(2))
        .sum::<f64>()
        / count;
    let deviation = variance.sqrt() + 1e-8;
    for sample in samples {
        sample.advantage = (sample.advantage - mean) / deviation;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_close(left: &[f64], right: &[f64]) -> bool {
        left.len() == right.len()
            && left
                .iter()
                .zip(right)
                .all(|(left, right)| (left - right).abs() < 1e-12)
    }

    #[test]
    fn terminated_episode_has_no_bootstrap_value() {
        let values = [1.0, 2.0, 4.0];
        let (first, last) = (REWARD_SCALE, 3.0 * REWARD_SCALE);
        let fallen = compute_advantages(&values, &[1.0, 3.0], true, 0.5, 0.5);
        assert!(are_close(
            &fallen,
            &[first + 1.0 - 1.0 + 0.25 * (last - 2.0), last - 2.0]
        ));
        let cut = compute_advantages(&values, &[1.0, 3.0], false, 0.5, 0.5);
        assert!(are_close(
            &cut,
            &[
                first + 1.0 - 1.0 + 0.25 * (last + 2.0 - 2.0),
                last + 2.0 - 2.0
            ]
        ));
    }

    #[test]
    fn full_trace_target_equals_return() {
        let values = [0.3, -0.2, 0.9, 0.1];
        let advantages = compute_advantages(&values, &[1.0, -1.0, 2.0], true, 1.0, 1.0);
        let targets: Vec<f64> = advantages
            .iter()
            .zip(values)
            .map(|(advantage, value)| advantage + value)
            .collect();
        assert!(are_close(
            &targets,
            &[2.0 * REWARD_SCALE, REWARD_SCALE, 2.0 * REWARD_SCALE]
        ));
    }

    #[test]
    fn empty_rewards_give_no_advantages() {
        assert!(compute_advantages(&[], &[], true, 0.9, 0.9).is_empty());
    }
}
