//! Checkpoints: from where a training goes on that was interrupted.
//!
//! All that is random in an iteration is drawn from the seed and its number, so a training that
//! goes on ends as it would have without the interruption, unless it collects ahead: frames of the
//! model before are collected anew, with this one. Who decides what comes next has them: the
//! coordinator, or who trains alone. A learner has nothing of its own between two tasks, as each
//! model, with what the optimiser needs, is stored.

mod store;

pub use store::{CheckpointPolicy, CheckpointStore};

use rand::{SeedableRng, rngs::StdRng};

use crate::{
    Result,
    codec::{open_file, encode_file},
    game::Game,
    model::Model,
};

const MAGIC: [u8; 4] = *b"DICP";

/// How far a training was.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Decides everything random.
    pub seed: u64,
    /// Frames collected so far.
    pub frames: u64,
    /// Mean return of the episodes that ended in the last iteration; unset where none did.
    pub mean_return: Option<f64>,
    /// The model, whose version is the number of the iteration.
    pub model: Model,
}

impl Checkpoint {
    /// Where a training begins.
    pub fn new_initial(game: Game, seed: u64) -> Self {
        Self {
            seed,
            frames: 0,
            mean_return: None,
            model: Model::random(game, &mut StdRng::seed_from_u64(seed)),
        }
    }

    /// The bytes of a checkpoint file.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = self.seed.to_le_bytes().to_vec();
        payload.extend(self.frames.to_le_bytes());
        // No mean of returns is not a number.
        let mean_return = self.mean_return.unwrap_or(f64::NAN);
        payload.extend(mean_return.to_le_bytes());
        payload.extend(self.model.encode());
        encode_file(MAGIC, &payload)
    }

    /// The checkpoint of a file.
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

    /// Succeeds if it is of this version, game and seed.
    fn check_matches(&self, version: u64, game: Game, seed: u64) -> Result<(), String> {
        let (own, other) = (self.model.policy.game(), self.model.version);
        if other != version {
            return Err(format!("it is of model {other}, not of {version}"));
        }
        if own != game {
            return Err(format!("it is of {own}, not of {game}"));
        }
        if self.seed != seed {
            return Err(format!("it is of seed {}, not of {seed}", self.seed));
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
