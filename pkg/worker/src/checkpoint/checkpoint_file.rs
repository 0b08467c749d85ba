//! Checkpoint files.

use rand::{SeedableRng, rngs::StdRng};

use crate::{Result, model::Model, storage::tensor_file::ReadTensors};

/// The state of a training.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Frames collected so far.
    pub frames: u64,
    /// Mean return of the episodes that ended in the last iteration, if any did.
    pub mean_return: Option<f64>,
    /// The model; its version is the iteration.
    pub model: Model,
}

impl Checkpoint {
    /// The state before the first iteration.
    pub fn new_initial(seed: u64) -> Self {
        Self {
            frames: 0,
            mean_return: None,
            model: Model::random(&mut StdRng::seed_from_u64(seed)),
        }
    }

    /// Encodes a checkpoint file: a model file with more values.
    pub fn encode(&self) -> Vec<u8> {
        let mut file = self.model.to_tensors();
        file = file.with_value("frames", &self.frames);
        if let Some(mean_return) = self.mean_return {
            file = file.with_value("mean_return", &mean_return);
        }
        file.encode()
    }

    /// Decodes a checkpoint file.
    pub fn decode(file: &[u8]) -> Result<Self> {
        let file = ReadTensors::open("checkpoint", file)?;
        Ok(Self {
            frames: file.value("frames")?,
            mean_return: file.find_value("mean_return"),
            model: Model::from_tensors(&file)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_round_trip_detects_truncation() {
        let mut checkpoint = Checkpoint {
            frames: 12_288,
            ..Checkpoint::new_initial(4)
        };
        checkpoint.model.version = 6;
        let file = checkpoint.encode();
        assert_eq!(Checkpoint::decode(&file).unwrap(), checkpoint);
        for place in (0..file.len()).step_by(97) {
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
