//! Frame files: what collectors store for learners.

use crate::{
    Result,
    codec::{Reader, open, seal},
    rollout::Trajectory,
};

const MAGIC: [u8; 4] = *b"DIFR";
/// Bytes per step: action, log probability, observation.
const STEP: usize = 1 + 4 + 16;

/// The bytes of a frame file.
pub fn encode(trajectories: &[Trajectory]) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.extend(length(trajectories.len()));
    for trajectory in trajectories {
        payload.extend(length(trajectory.actions.len()));
        payload.push(u8::from(trajectory.terminated));
        payload.extend(&trajectory.actions);
        payload.extend(
            trajectory
                .log_probabilities
                .iter()
                .flat_map(|value| value.to_le_bytes()),
        );
        payload.extend(
            trajectory
                .observations
                .iter()
                .flatten()
                .flat_map(|value| value.to_le_bytes()),
        );
    }
    seal(MAGIC, &payload)
}

/// The trajectories of a frame file.
pub fn decode(file: &[u8]) -> Result<Vec<Trajectory>> {
    let mut reader = open("frame", MAGIC, file)?;
    let count = reader.count(5)?;
    let trajectories = (0..count)
        .map(|_| trajectory(&mut reader))
        .collect::<Result<_>>()?;
    reader.end()?;
    Ok(trajectories)
}

fn trajectory(reader: &mut Reader<'_>) -> Result<Trajectory> {
    let steps = reader.count(STEP)?;
    let terminated = reader.u8()? != 0;
    let actions: Vec<u8> = (0..steps).map(|_| reader.u8()).collect::<Result<_>>()?;
    if actions.iter().any(|action| *action > 1) {
        return Err(reader.bad("it holds an action that does not exist"));
    }
    let log_probabilities = (0..steps).map(|_| reader.f32()).collect::<Result<_>>()?;
    let observations = (0..=steps)
        .map(|_| Ok([reader.f32()?, reader.f32()?, reader.f32()?, reader.f32()?]))
        .collect::<Result<_>>()?;
    Ok(Trajectory {
        observations,
        actions,
        log_probabilities,
        terminated,
    })
}

fn length(count: usize) -> [u8; 4] {
    u32::try_from(count)
        .expect("a task has at most MAX_FRAMES frames")
        .to_le_bytes()
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;
    use crate::{policy::Policy, rollout::collect};

    #[test]
    fn frames_survive_the_round_trip() {
        let mut rng = StdRng::seed_from_u64(1);
        let trajectories = collect(&Policy::random(&mut rng), 123, &mut rng).trajectories;
        assert_eq!(decode(&encode(&trajectories)).unwrap(), trajectories);
        assert_eq!(decode(&encode(&[])).unwrap(), []);
    }

    #[test]
    fn absurd_counts_and_actions_are_refused() {
        let refuse = |payload: &[u8]| assert!(decode(&seal(MAGIC, payload)).is_err());
        refuse(&[255; 4]);
        refuse(&[1, 0, 0, 0, 255, 255, 255, 255, 0]);
        let mut steps = Trajectory {
            observations: vec![[0.0; 4]; 2],
            ..Trajectory::default()
        };
        (steps.actions, steps.log_probabilities) = (vec![2], vec![0.0]);
        assert!(
            decode(&encode(&[steps]))
                .unwrap_err()
                .to_string()
                .contains("action")
        );
    }
}
