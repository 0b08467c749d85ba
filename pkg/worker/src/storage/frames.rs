//! Frame files: collectors store them for learners.

use crate::{
    Result,
    environment::{ACTIONS, OBSERVATION_SIZE},
    sampler::rollout::Trajectory,
    storage::tensor_file::{ReadTensors, TensorFile},
};

/// Encodes a frame file: the steps of all trajectories in one tensor per quantity, and the number
/// of steps of each.
pub fn encode(trajectories: &[Trajectory]) -> Vec<u8> {
    let lengths: Vec<_> = trajectories.iter().map(Trajectory::step_count).collect();
    let terminated: Vec<_> = trajectories
        .iter()
        .map(|trajectory| u8::from(trajectory.terminated))
        .collect();
    let actions = concat(trajectories, |trajectory| &trajectory.actions);
    let rewards = concat(trajectories, |trajectory| &trajectory.rewards);
    let log_probabilities = concat(trajectories, |trajectory| &trajectory.log_probabilities);
    let observations = concat(trajectories, |trajectory| &trajectory.observations);
    let (steps, rows) = (actions.len(), observations.len() / OBSERVATION_SIZE);
    TensorFile::default()
        .with_tensor("lengths", &lengths, &[lengths.len()])
        .with_tensor("terminated", &terminated, &[terminated.len()])
        .with_tensor("actions", &actions, &[steps])
        .with_tensor("rewards", &rewards, &[steps])
        .with_tensor("log_probabilities", &log_probabilities, &[steps])
        .with_tensor("observations", &observations, &[rows, OBSERVATION_SIZE])
        .encode()
}

/// Decodes a frame file.
pub fn decode(file: &[u8]) -> Result<Vec<Trajectory>> {
    let file = ReadTensors::open("frame", file)?;
    let lengths = file.numbers::<u32>("lengths")?;
    let terminated = file.numbers::<u8>("terminated")?;
    let actions = file.numbers::<u8>("actions")?;
    let rewards = file.numbers::<f32>("rewards")?;
    let log_probabilities = file.numbers::<f32>("log_probabilities")?;
    let observations = file.numbers::<f32>("observations")?;
    let size = OBSERVATION_SIZE;
    let steps: usize = lengths.iter().map(|length| *length as usize).sum();
    if terminated.len() != lengths.len()
        || [actions.len(), rewards.len(), log_probabilities.len()] != [steps; 3]
        || observations.len() != (steps + lengths.len()) * size
    {
        return Err(file.bad_file("its tensors have different lengths"));
    }
    let is_invalid = |action: &u8| usize::from(*action) >= ACTIONS;
    if actions.iter().any(is_invalid) {
        return Err(file.bad_file("it contains an invalid action"));
    }
    let (mut step, mut row) = (0, 0);
    let cut = |(length, terminated): (&u32, &u8)| {
        let steps = step..step + *length as usize;
        let rows = row * size..(row + steps.len() + 1) * size;
        (step, row) = (steps.end, row + steps.len() + 1);
        Trajectory {
            observations: observations[rows].to_vec(),
            actions: actions[steps.clone()].to_vec(),
            rewards: rewards[steps.clone()].to_vec(),
            log_probabilities: log_probabilities[steps].to_vec(),
            terminated: *terminated != 0,
        }
    };
    Ok(lengths.iter().zip(&terminated).map(cut).collect())
}

/// One quantity of all trajectories.
fn concat<T: Copy>(trajectories: &[Trajectory], part: impl Fn(&Trajectory) -> &Vec<T>) -> Vec<T> {
    let parts = trajectories.iter().flat_map(part);
    parts.copied().collect()
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;
    use crate::{
        model::policy::Policy,
        sampler::{pipeline::Pipeline, sampling::Sampling},
    };

    #[test]
    fn frames_round_trip() {
        let mut sampler = Pipeline::new(Sampling::default()).unwrap();
        let policy = Policy::random(&mut StdRng::seed_from_u64(1));
        let trajectories = sampler.collect(&policy, 723, 1).unwrap().trajectories;
        for trajectories in [trajectories, Vec::new()] {
            assert_eq!(decode(&encode(&trajectories)).unwrap(), trajectories);
        }
    }

    #[test]
    fn invalid_lengths_and_actions_are_rejected() {
        let decode_error = |steps: u32, action: u8| {
            let file = TensorFile::default()
                .with_tensor("lengths", &[steps], &[1])
                .with_tensor("terminated", &[0_u8], &[1])
                .with_tensor("actions", &[action], &[1])
                .with_tensor("rewards", &[1.0_f32], &[1])
                .with_tensor("log_probabilities", &[0.0_f32], &[1])
                .with_tensor("observations", &[0.0_f32; 8], &[2, 4]);
            decode(&file.encode()).err()
        };
        assert!(decode_error(1, 1).is_none());
        for (steps, action, reason) in [
            (0, 1, "different lengths"),
            (2, 1, "different lengths"),
            (u32::MAX, 1, "different lengths"),
            (1, 2, "invalid action"),
        ] {
            let error = decode_error(steps, action).unwrap().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
