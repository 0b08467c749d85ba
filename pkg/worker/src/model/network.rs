//! Actor and critic: dense layers with tanh between them and a linear output. Computed by candle;
//! see docs/decisions/0022.

use candle_core::{D, Device, Tensor, Var};

use crate::{Result, environment::SCALE, model::policy::Policy};

const CPU: Device = Device::Cpu;

/// A policy as tensors.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    actor: Vec<Dense>,
    critic: Vec<Dense>,
}

#[derive(Clone, Debug)]
struct Dense {
    weights: Tensor,
    biases: Tensor,
}

impl Network {
    /// A network for inference.
    pub(crate) fn new(policy: &Policy) -> Result<Self> {
        Self::from_policy(policy, |numbers, shape| {
            Tensor::from_slice(numbers, shape, &CPU)
        })
    }

    /// A network whose parameters have gradients.
    pub(crate) fn new_trainable(policy: &Policy) -> Result<Self> {
        Self::from_policy(policy, |numbers, shape| {
            Ok(Var::from_slice(numbers, shape, &CPU)?.into_inner())
        })
    }

    fn from_policy(
        policy: &Policy,
        tensor: impl Fn(&[f64], &[usize]) -> candle_core::Result<Tensor>,
    ) -> Result<Self> {
        let layers = |(sizes, mut parameters): ([usize; 4], &[f64])| {
            let layer = |pair: &[usize]| {
                let (inputs, outputs) = (pair[0], pair[1]);
                let (weights, rest) = parameters.split_at(inputs * outputs);
                let (biases, rest) = rest.split_at(outputs);
                parameters = rest;
                Ok(Dense {
                    weights: tensor(weights, &[inputs, outputs])?,
                    biases: tensor(biases, &[outputs])?,
                })
            };
            sizes.windows(2).map(layer).collect::<Result<Vec<_>>>()
        };
        let [actor, critic] = policy.network_layers();
        Ok(Self {
            actor: layers(actor)?,
            critic: layers(critic)?,
        })
    }

    /// The parameters, in the order of the policy.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &Tensor> {
        let layers = self.actor.iter().chain(&self.critic);
        layers.flat_map(|layer| [&layer.weights, &layer.biases])
    }

    /// Scaled observations, one row each.
    pub(crate) fn feature_tensor<'a>(
        observations: impl Iterator<Item = &'a [f32]>,
    ) -> Result<Tensor> {
        let scaled = observations.flat_map(|observation| {
            let numbers = observation.iter().zip(SCALE);
            numbers.map(|(value, scale)| scale * f64::from(*value))
        });
        let numbers: Vec<f64> = scaled.collect();
        let rows = numbers.len() / SCALE.len();
        Ok(Tensor::from_vec(numbers, (rows, SCALE.len()), &CPU)?)
    }

    /// Log probabilities of the actions, one row per row of features.
    pub(crate) fn log_probabilities(&self, features: &Tensor) -> Result<Tensor> {
        let logits = forward_layers(&self.actor, features)?;
        let normaliser = logits.log_sum_exp(D::Minus1)?.unsqueeze(D::Minus1)?;
        Ok(logits.broadcast_sub(&normaliser)?)
    }

    /// Expected (discounted, scaled) returns, one row per row of features.
    pub(crate) fn state_values(&self, features: &Tensor) -> Result<Tensor> {
        Ok(forward_layers(&self.critic, features)?)
    }

    /// Logits of the actions of all observations.
    pub(crate) fn action_logits<'a>(
        &self,
        observations: impl Iterator<Item = &'a [f32]>,
    ) -> Result<Vec<f64>> {
        tensor_values(&forward_layers(
            &self.actor,
            &Self::feature_tensor(observations)?,
        )?)
    }

    /// Expected (discounted, scaled) returns of all observations.
    pub(crate) fn evaluate_states<'a>(
        &self,
        observations: impl Iterator<Item = &'a [f32]>,
    ) -> Result<Vec<f64>> {
        tensor_values(&self.state_values(&Self::feature_tensor(observations)?)?)
    }
}

/// A column vector.
pub(crate) fn column_tensor(numbers: impl Iterator<Item = f64>) -> Result<Tensor> {
    let numbers: Vec<f64> = numbers.collect();
    let rows = numbers.len();
    Ok(Tensor::from_vec(numbers, (rows, 1), &CPU)?)
}

/// The numbers of a tensor, row by row.
pub(crate) fn tensor_values(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(tensor.flatten_all()?.to_vec1()?)
}

fn forward_layers(layers: &[Dense], features: &Tensor) -> candle_core::Result<Tensor> {
    let mut output = features.clone();
    for (number, layer) in layers.iter().enumerate() {
        if number > 0 {
            output = output.tanh()?;
        }
        output = output
            .matmul(&layer.weights)?
            .broadcast_add(&layer.biases)?;
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn logits_do_not_depend_on_batch() {
        let mut rng = StdRng::seed_from_u64(4);
        let network = Network::new(&Policy::random(&mut rng)).unwrap();
        let seen: Vec<f32> = (0..70 * SCALE.len())
            .map(|_| rng.random_range(-2.0..2.0))
            .collect();
        let seen: Vec<_> = seen.chunks_exact(SCALE.len()).collect();
        let alone: Vec<_> = seen
            .iter()
            .flat_map(|one| network.action_logits([*one].into_iter()).unwrap())
            .collect();
        for rows in [2, 3, 5, 8, 33, 70] {
            let batched: Vec<_> = seen
                .chunks(rows)
                .flat_map(|some| network.action_logits(some.iter().copied()).unwrap())
                .collect();
            assert_eq!(batched, alone, "{rows} at once");
        }
    }

    #[test]
    fn parameters_are_in_policy_order() {
        let policy = Policy::random(&mut StdRng::seed_from_u64(1));
        let network = Network::new_trainable(&policy).unwrap();
        let all = network
            .parameters()
            .map(|tensor| tensor_values(tensor).unwrap());
        assert_eq!(all.collect::<Vec<_>>().concat(), policy.parameters());
    }
}
