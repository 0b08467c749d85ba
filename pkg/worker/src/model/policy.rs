//! The policy: an actor that chooses actions and a critic that estimates returns, as stored and
//! trained. `Network` computes it.

use rand::{Rng, RngExt};

use crate::environment::{ACTIONS, OBSERVATION_SIZE};

/// Width of both hidden layers of stored policies.
const HIDDEN: usize = 32;

/// Actor and critic. All parameters are in one vector: of each layer the weights, input
/// by input, then the biases.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    hidden: usize,
    parameters: Vec<f64>,
}

impl Policy {
    /// A random policy that chooses actions almost uniformly.
    pub fn random(rng: &mut impl Rng) -> Self {
        Self::with_hidden_width(HIDDEN, rng)
    }

    /// A policy with another hidden width, for benchmarks.
    pub fn with_hidden_width(hidden: usize, rng: &mut impl Rng) -> Self {
        let mut parameters = Vec::new();
        for (sizes, output_gain) in [(actor_sizes(hidden), 0.01), (critic_sizes(hidden), 1.0)] {
            let last = sizes.len() - 2;
            for (layer, pair) in sizes.windows(2).enumerate() {
                let (inputs, outputs) = (pair[0], pair[1]);
                let gain = if layer == last { output_gain } else { 1.0 };
                let limit = gain * (3.0 / inputs as f64).sqrt();
                let weights = (0..inputs * outputs).map(|_| limit * rng.random_range(-1.0..1.0));
                parameters.extend(weights);
                parameters.extend(std::iter::repeat_n(0.0, outputs));
            }
        }
        Self { hidden, parameters }
    }

    /// A policy whose parameters are all 0.
    pub(crate) fn zeroed() -> Self {
        Self {
            hidden: HIDDEN,
            parameters: vec![0.0; Self::parameter_count()],
        }
    }

    /// Names and shapes of the weights (inputs, outputs) and biases, in the order of the
    /// parameters.
    pub(crate) fn tensor_shapes(&self) -> Vec<(String, Vec<usize>)> {
        let mut tensors = Vec::new();
        for (network, (sizes, _)) in ["actor", "critic"].iter().zip(self.network_layers()) {
            for (layer, pair) in sizes.windows(2).enumerate() {
                tensors.push((format!("{network}.{layer}.weights"), pair.to_vec()));
                tensors.push((format!("{network}.{layer}.biases"), pair[1..].to_vec()));
            }
        }
        tensors
    }

    /// All parameters, actor first.
    pub fn parameters(&self) -> &[f64] {
        &self.parameters
    }

    /// All parameters, actor first, for an optimiser.
    pub fn parameters_mut(&mut self) -> &mut [f64] {
        &mut self.parameters
    }

    /// Number of parameters of every stored policy.
    pub fn parameter_count() -> usize {
        parameter_total(&actor_sizes(HIDDEN)) + parameter_total(&critic_sizes(HIDDEN))
    }

    /// Layer sizes of actor and critic, and the parameters of each.
    pub(crate) fn network_layers(&self) -> [([usize; 4], &[f64]); 2] {
        let actor = actor_sizes(self.hidden);
        let (actors, critics) = self.parameters.split_at(parameter_total(&actor));
        [(actor, actors), (critic_sizes(self.hidden), critics)]
    }
}

/// Layer sizes of the actor: observation to one logit per action.
const fn actor_sizes(hidden: usize) -> [usize; 4] {
    [OBSERVATION_SIZE, hidden, hidden, ACTIONS]
}

/// Layer sizes of the critic: observation to expected return.
const fn critic_sizes(hidden: usize) -> [usize; 4] {
    [OBSERVATION_SIZE, hidden, hidden, 1]
}

/// Number of weights and biases of layers with these sizes.
fn parameter_total(sizes: &[usize]) -> usize {
    sizes.windows(2).map(|pair| (pair[0] + 1) * pair[1]).sum()
}
