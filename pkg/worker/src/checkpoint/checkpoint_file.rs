//! Checkpoint files.

use rand::{SeedableRng, rngs::StdRng};

use crate::{
    Result,
    environment::game::Game,
    model::model_file::Model,
    storage::codec::{encode_file, open_file},
};

const MAGIC: [u8; 4] = *b"DICP";

/// The state of a training.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The seed of all randomness.
    pub seed: u64,
    /// Frames collected so far.
    pub frames: u64,
    /// Mean return of the episodes that ended in the last iteration, if any did.
    pub mean_return: Option<f64>,
    /// The model; its version is the iteration.
    pub model: Model,
}

impl Checkpoint {
    /// The state before the first iteration.
    pub fn new_initial(game: Game, seed: u64) -> Self {
        Self {
            seed,
            frames: 0,
            mean_return: None,
            model: Model::random(game, &mut StdRng::seed_from_u64(seed)),
        }
    }

    /// Encodes a checkpoint file.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = self.seed.to_le_bytes().to_vec();
        payload.extend(self.frames.to_le_bytes());
        // NaN encodes a missing mean return.
        let mean_return = self.mean_return.unwrap_or(f64::NAN);
        payload.extend(mean_return.to_le_bytes());
        payload.extend(self.model.encode());
        encode_file(MAGIC, &payload)
    }

    /// Decodes a checkpoint file.
    pub fn decode(file: &[u8]) -> Result<Self> {
        let mut reader = open_file("checkpoint", MAGIC, file)?;
        let (seed, frames) = (reader.read_u64()?, reader.read_u64()?);
        let mean_return = Some(reader.read_f64()?).filter(|mean| !mean.is_nan());
        Ok(Self {
            seed,
            frames,
            mean_return,
            model: Model::decode(reader.remaining_bytes())?,
        })
    }

    /// Checks that the checkpoint has this version, game and seed.
    pub(super) fn check_matches(&self, version: u64, game: Game, seed: u64) -> Result<(), String> {
        let (own, other) = (self.model.policy.game(), self.model.version);
        if other != version {
            return Err(format!("it contains model {other}, not {version}"));
        }
        if own != game {
            return Err(format!("its environment is {own}, not {game}"));
        }
        if self.seed != seed {
            return Err(format!("its seed is {}, not {seed}", self.seed));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_round_trip_detects_damage() {
        let mut checkpoint = Checkpoint {
            frames: 12_288,
            ..Checkpoint::new_initial(Game::Acrobot, 4)
        };
        checkpoint.model.version = 6;
        let file = checkpoint.encode();
        assert_eq!(Checkpoint::decode(&file).unwrap(), checkpoint);
        for place in (0..file.len()).step_by(97) {
            let mut damaged = file.clone();
            damaged[place] ^= 1;
            assert!(Checkpoint::decode(&damaged).is_err(), "byte {place}");
            assert!(
                Checkpoint::decode(&file[..place]).is_err(),
                "cut at {place}"
            );
        }
        checkpoint.mean_return = Some(-83.5);
        assert_eq!(
            Checkpoint::decode(&checkpoint.encode()).unwrap(),
            checkpoint
        );
    }
}
