//! Model files: the policy and the state of the optimiser.

use std::path::Path;

use rand::Rng;

use crate::{
    Error, Result,
    environment::game::Game,
    model::{adam::Adam, policy::Policy},
    storage::{
        Storage,
        codec::{Reader, encode_file, encode_game, open_file},
    },
};

const MAGIC: [u8; 4] = *b"DIMD";

/// A version of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Number of updates.
    pub version: u64,
    /// Actor and critic.
    pub policy: Policy,
    /// State of the optimiser, so that any learner can continue.
    pub adam: Adam,
}

impl Model {
    /// The first model of a training.
    pub fn random(game: Game, rng: &mut impl Rng) -> Self {
        Self {
            version: 0,
            policy: Policy::random(game, rng),
            adam: Adam::new(Policy::parameter_count(game)),
        }
    }

    /// Loads a model and checks its game and version.
    pub fn load_checked(storage: &Storage, path: &Path, game: Game, version: u64) -> Result<Self> {
        let model = Self::decode(&storage.read(path)?)?;
        let other = model.policy.game();
        if other != game {
            return Err(Error::BadTask(format!(
                "the environment of the model is {other}, not {game}"
            )));
        }
        if model.version != version {
            return Err(Error::BadTask(format!(
                "the model is version {}, not {version}",
                model.version
            )));
        }
        Ok(model)
    }

    /// Encodes a model file.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = encode_game(self.policy.game());
        payload.extend(self.version.to_le_bytes());
        payload.extend(self.adam.step.to_le_bytes());
        let values = self
            .policy
            .parameters()
            .iter()
            .chain(&self.adam.mean)
            .chain(&self.adam.square);
        payload.extend(values.flat_map(|value| value.to_le_bytes()));
        encode_file(MAGIC, &payload)
    }

    /// Decodes a model file.
    pub fn decode(file: &[u8]) -> Result<Self> {
        let mut reader = open_file("model", MAGIC, file)?;
        let game = reader.read_game()?;
        let (version, step) = (reader.read_u64()?, reader.read_u64()?);
        let count = Policy::parameter_count(game);
        let parameters = read_values(count, &mut reader)?;
        let adam = Adam {
            step,
            mean: read_values(count, &mut reader)?,
            square: read_values(count, &mut reader)?,
        };
        reader.expect_end()?;
        let policy = Policy::from_parameters(game, parameters)
            .ok_or_else(|| reader.bad_file("its size is wrong"))?;
        Ok(Self {
            version,
            policy,
            adam,
        })
    }
}

/// File name of a model version in the folder of the run.
pub(crate) fn model_file(version: u64) -> String {
    format!("model-{version}.bin")
}

fn read_values(count: usize, reader: &mut Reader<'_>) -> Result<Vec<f64>> {
    (0..count)
        .map(|_| {
            let value = reader.read_f64()?;
            if value.is_finite() {
                Ok(value)
            } else {
                Err(reader.bad_file("it contains a number that is not finite"))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn model_round_trip() {
        for game in Game::ALL {
            let mut model = Model::random(game, &mut StdRng::seed_from_u64(1));
            model.version = 12;
            model.adam.step = 34;
            model.adam.mean[5] = 0.25;
            model.adam.square[6] = 0.75;
            assert_eq!(Model::decode(&model.encode()).unwrap(), model);
        }
    }

    #[test]
    fn model_of_other_environment_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path()).unwrap();
        let path = folder.path().join("model");
        let model = Model::random(Game::Acrobot, &mut StdRng::seed_from_u64(1));
        storage.write(&path, &model.encode()).unwrap();
        let load = |game| Model::load_checked(&storage, &path, game, 0);
        assert_eq!(load(Game::Acrobot).unwrap(), model);
        let error = load(Game::CartPole).unwrap_err().to_string();
        assert!(error.contains("is Acrobot-v1, not CartPole-v1"), "{error}");
    }

    #[test]
    fn model_with_invalid_size_or_values_is_rejected() {
        let mut payload = encode_game(Game::CartPole);
        payload.extend([0; 160]);
        assert!(Model::decode(&encode_file(MAGIC, &payload)).is_err());
        let mut model = Model::random(Game::CartPole, &mut StdRng::seed_from_u64(1));
        model.adam.mean[0] = f64::NAN;
        assert!(
            Model::decode(&model.encode())
                .unwrap_err()
                .to_string()
                .contains("not finite")
        );
    }
}
