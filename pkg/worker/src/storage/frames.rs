//! Frame files: collectors store them for learners.

use crate::{
    Result,
    environment::game::Game,
    sampler::rollout::Trajectory,
    storage::codec::{Reader, encode_file, encode_game, open_file},
};

const MAGIC: [u8; 4] = *b"DIFR";

/// The content of a frame file.
#[derive(Clone, Debug, PartialEq)]
pub struct Frames {
    /// Version of the model that collected the frames.
    pub version: u64,
    /// The frames.
    pub trajectories: Vec<Trajectory>,
}

/// Encodes a frame file.
pub fn encode(game: Game, version: u64, trajectories: &[Trajectory]) -> Vec<u8> {
    let mut payload = encode_game(game);
    payload.extend(version.to_le_bytes());
    payload.extend(encode_length(trajectories.len()));
    for trajectory in trajectories {
        payload.extend(encode_length(trajectory.actions.len()));
        payload.push(u8::from(trajectory.terminated));
        payload.extend(&trajectory.actions);
        let numbers = [
            &trajectory.rewards,
            &trajectory.log_probabilities,
            &trajectory.observations,
        ];
        let numbers = numbers.into_iter().flatten();
        payload.extend(numbers.flat_map(|value| value.to_le_bytes()));
    }
    encode_file(MAGIC, &payload)
}

/// Decodes a frame file, which must be of this game.
pub fn decode(game: Game, file: &[u8]) -> Result<Frames> {
    let mut reader = open_file("frame", MAGIC, file)?;
    let other = reader.read_game()?;
    if other != game {
        return Err(reader.bad_file(format!("its environment is {other}, not {game}")));
    }
    let version = reader.read_u64()?;
    let count = reader.read_count(5)?;
    let trajectories = (0..count)
        .map(|_| decode_trajectory(game, &mut reader))
        .collect::<Result<_>>()?;
    reader.expect_end()?;
    Ok(Frames {
        version,
        trajectories,
    })
}

fn decode_trajectory(game: Game, reader: &mut Reader<'_>) -> Result<Trajectory> {
    let (observation, actions) = (game.rules().observation_size(), game.rules().actions);
    // Bytes per step: action, reward, log probability, observation.
    let steps = reader.read_count(1 + 4 + 4 + 4 * observation)?;
    let terminated = reader.read_u8()? != 0;
    let taken: Vec<u8> = (0..steps)
        .map(|_| reader.read_u8())
        .collect::<Result<_>>()?;
    if taken.iter().any(|action| usize::from(*action) >= actions) {
        return Err(reader.bad_file("it contains an invalid action"));
    }
    let mut numbers = |count| (0..count).map(|_| reader.read_f32()).collect::<Result<_>>();
    Ok(Trajectory {
        actions: taken,
        rewards: numbers(steps)?,
        log_probabilities: numbers(steps)?,
        observations: numbers((steps + 1) * observation)?,
        terminated,
    })
}

fn encode_length(count: usize) -> [u8; 4] {
    u32::try_from(count)
        .expect("a task has at most MAX_FRAMES frames")
        .to_le_bytes()
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;
    use crate::{
        model::policy::Policy,
        sampler::{
            pipeline::{Pipeline, Sampler},
            sampling::Sampling,
        },
    };

    #[test]
    fn frames_round_trip() {
        let mut sampler = Pipeline::new(Sampling::default()).unwrap();
        for game in Game::ALL {
            let policy = Policy::random(game, &mut StdRng::seed_from_u64(1));
            let trajectories = sampler.collect(&policy, 723, 1).unwrap().trajectories;
            for trajectories in [trajectories, Vec::new()] {
                let file = encode(game, 12, &trajectories);
                let frames = Frames {
                    version: 12,
                    trajectories,
                };
                assert_eq!(decode(game, &file).unwrap(), frames);
            }
        }
    }

    #[test]
    fn frames_of_other_environment_are_rejected() {
        let error = decode(Game::CartPole, &encode(Game::Acrobot, 0, &[])).unwrap_err();
        let reason = "its environment is Acrobot-v1, not CartPole-v1";
        assert!(error.to_string().contains(reason), "{error}");
    }

    #[test]
    fn invalid_counts_and_actions_are_rejected() {
        let refuse = |payload: &[u8]| {
            let payload = [&encode_game(Game::CartPole)[..], &[0; 8], payload].concat();
            assert!(decode(Game::CartPole, &encode_file(MAGIC, &payload)).is_err());
        };
        refuse(&[255; 4]);
        refuse(&[1, 0, 0, 0, 255, 255, 255, 255, 0]);
        let mut steps = Trajectory {
            observations: vec![0.0; 8],
            ..Trajectory::default()
        };
        (steps.actions, steps.rewards) = (vec![2], vec![1.0]);
        steps.log_probabilities = vec![0.0];
        assert!(
            decode(Game::CartPole, &encode(Game::CartPole, 0, &[steps]))
                .unwrap_err()
                .to_string()
                .contains("action")
        );
    }
}
