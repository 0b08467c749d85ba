//! Model files: the policy and the state of the optimiser.

use std::path::Path;

use rand::Rng;

use crate::{
    Result,
    model::{adam::Adam, policy::Policy},
    storage::{
        Storage,
        tensor_file::{ReadTensors, TensorFile},
    },
};

/// Prefixes of the names of the parameters and of their running means.
const PARAMETERS: &str = "";
const MEAN: &str = "exp_avg.";
const SQUARE: &str = "exp_avg_sq.";

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
    pub fn random(rng: &mut impl Rng) -> Self {
        Self {
            version: 0,
            policy: Policy::random(rng),
            adam: Adam::new(Policy::parameter_count()),
        }
    }

    /// Loads a model.
    pub fn load(storage: &Storage, path: &Path) -> Result<Self> {
        Self::decode(&storage.read(path)?)
    }

    /// Encodes a model file: the weights and biases of each layer, and their running means as
    /// PyTorch's Adam names them.
    pub fn encode(&self) -> Vec<u8> {
        self.to_tensors().encode()
    }

    /// Decodes a model file.
    pub fn decode(file: &[u8]) -> Result<Self> {
        Self::from_tensors(&ReadTensors::open("model", file)?)
    }

    /// The file, before it is encoded.
    pub(crate) fn to_tensors(&self) -> TensorFile {
        let mut file = TensorFile::default()
            .with_value("version", &self.version)
            .with_value("step", &self.adam.step);
        for (group, mut numbers) in [
            (PARAMETERS, self.policy.parameters()),
            (MEAN, &self.adam.mean),
            (SQUARE, &self.adam.square),
        ] {
            for (name, shape) in self.policy.tensor_shapes() {
                let (tensor, rest) = numbers.split_at(shape.iter().product());
                file = file.with_tensor(format!("{group}{name}"), tensor, &shape);
                numbers = rest;
            }
        }
        file
    }

    /// Reads the model from a file.
    pub(crate) fn from_tensors(file: &ReadTensors<'_>) -> Result<Self> {
        let mut policy = Policy::zeroed();
        let read_group = |group: &str| {
            let mut numbers = Vec::new();
            for (name, shape) in policy.tensor_shapes() {
                let tensor = file.numbers::<f64>(&format!("{group}{name}"))?;
                if tensor.len() != shape.iter().product::<usize>() {
                    return Err(file.bad_file(format!("the shape of {group}{name} is wrong")));
                }
                numbers.extend(tensor);
            }
            if !numbers.iter().all(|number| number.is_finite()) {
                return Err(file.bad_file("it contains a number that is not finite"));
            }
            Ok(numbers)
        };
        let adam = Adam {
            step: file.value("step")?,
            mean: read_group(MEAN)?,
            square: read_group(SQUARE)?,
        };
        let parameters = read_group(PARAMETERS)?;
        policy.parameters_mut().copy_from_slice(&parameters);
        Ok(Self {
            version: file.value("version")?,
            policy,
            adam,
        })
    }
}

/// File name of a model version in the folder of the run.
pub(crate) fn model_file(version: u64) -> String {
    format!("model-{version}.safetensors")
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn model_round_trip() {
        let mut model = Model::random(&mut StdRng::seed_from_u64(1));
        model.version = 12;
        model.adam.step = 34;
        model.adam.mean[5] = 0.25;
        model.adam.square[6] = 0.75;
        assert_eq!(Model::decode(&model.encode()).unwrap(), model);
    }

    #[test]
    fn model_with_invalid_size_or_values_is_rejected() {
        let empty = TensorFile::default()
            .with_value("version", &1)
            .with_value("step", &1);
        assert!(Model::decode(&empty.encode()).is_err());
        let mut model = Model::random(&mut StdRng::seed_from_u64(1));
        model.adam.mean[0] = f64::NAN;
        let error = Model::decode(&model.encode()).unwrap_err().to_string();
        assert!(error.contains("not finite"), "{error}");
    }
}
