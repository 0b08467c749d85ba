//! A multilayer perceptron with hand-written backpropagation.

use rand::{Rng, RngExt};

/// Dense layers with tanh between them and a linear output; all parameters in one flat vector.
///
/// Weights are stored input by input, so that the inner loops run along consecutive outputs and the
/// compiler vectorises them.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    sizes: Vec<usize>,
    parameters: Vec<f64>,
}

/// The activations of one forward pass, layer by layer, input first: what the backward pass needs.
/// Reused between samples.
#[derive(Clone, Debug)]
pub struct Activations {
    layers: Vec<Vec<f64>>,
    gradients: Vec<Vec<f64>>,
}

impl Mlp {
    /// Network with random weights; the last layer's are scaled by `output_gain`.
    pub fn random(sizes: &[usize], output_gain: f64, rng: &mut impl Rng) -> Self {
        let last = sizes.len() - 2;
        let mut parameters = Vec::with_capacity(parameter_count(sizes));
        for (layer, pair) in sizes.windows(2).enumerate() {
            let (inputs, outputs) = (pair[0], pair[1]);
            let gain = if layer == last { output_gain } else { 1.0 };
            let limit = gain * (3.0 / inputs as f64).sqrt();
            parameters.extend((0..inputs * outputs).map(|_| limit * rng.random_range(-1.0..1.0)));
            parameters.extend(std::iter::repeat_n(0.0, outputs));
        }
        Self {
            sizes: sizes.to_vec(),
            parameters,
        }
    }

    /// Network with the given parameters, if their number is right.
    pub fn from_parameters(sizes: &[usize], parameters: Vec<f64>) -> Option<Self> {
        (parameters.len() == parameter_count(sizes)).then(|| Self {
            sizes: sizes.to_vec(),
            parameters,
        })
    }

    /// Buffers for the passes through this network.
    pub fn activations(&self) -> Activations {
        let layers: Vec<_> = self.sizes.iter().map(|&size| vec![0.0; size]).collect();
        Activations {
            gradients: layers.clone(),
            layers,
        }
    }

    /// All weights and biases.
    pub fn parameters(&self) -> &[f64] {
        &self.parameters
    }

    /// All weights and biases, for an optimiser.
    pub fn parameters_mut(&mut self) -> &mut [f64] {
        &mut self.parameters
    }

    /// Runs the network on `input` and returns its outputs.
    pub fn forward<'a>(&self, input: &[f64], activations: &'a mut Activations) -> &'a [f64] {
        let layers = &mut activations.layers;
        layers[0].copy_from_slice(input);
        let mut parameters = self.parameters.as_slice();
        let last = self.sizes.len() - 2;
        for layer in 0..=last {
            let (inputs, outputs) = (self.sizes[layer], self.sizes[layer + 1]);
            let (weights, rest) = parameters.split_at(inputs * outputs);
            let (biases, rest) = rest.split_at(outputs);
            parameters = rest;
            let (before, after) = layers.split_at_mut(layer + 1);
            let output = &mut after[0];
            output.copy_from_slice(biases);
            for (value, row) in before[layer].iter().zip(weights.chunks_exact(outputs)) {
                for (sum, weight) in output.iter_mut().zip(row) {
                    *sum += value * weight;
                }
            }
            if layer < last {
                for value in output {
                    *value = value.tanh();
                }
            }
        }
        &layers[last + 1]
    }

    /// Adds to `gradient` the derivative of a loss by every parameter, given its derivative by the
    /// outputs of the forward pass that `activations` holds.
    pub fn backward(
        &self,
        output_gradient: &[f64],
        activations: &mut Activations,
        gradient: &mut [f64],
    ) {
        let Activations { layers, gradients } = activations;
        let last = self.sizes.len() - 2;
        gradients[last + 1].copy_from_slice(output_gradient);
        let mut end = self.parameters.len();
        for layer in (0..=last).rev() {
            let (inputs, outputs) = (self.sizes[layer], self.sizes[layer + 1]);
            let start = end - (inputs + 1) * outputs;
            let weights = &self.parameters[start..end - outputs];
            let (weight_gradients, bias_gradients) =
                gradient[start..end].split_at_mut(inputs * outputs);
            end = start;
            let (before, after) = gradients.split_at_mut(layer + 1);
            let delta = after[0].as_slice();
            for (sum, value) in bias_gradients.iter_mut().zip(delta) {
                *sum += value;
            }
            for (input, row) in weight_gradients.chunks_exact_mut(outputs).enumerate() {
                let value = layers[layer][input];
                for (sum, delta) in row.iter_mut().zip(delta) {
                    *sum += value * delta;
                }
            }
            if layer > 0 {
                for (input, row) in weights.chunks_exact(outputs).enumerate() {
                    let value = layers[layer][input];
                    before[layer][input] = dot(row, delta) * (1.0 - value * value);
                }
            }
        }
    }
}

/// Number of weights and biases of a network with these layer sizes.
pub fn parameter_count(sizes: &[usize]) -> usize {
    sizes.windows(2).map(|pair| (pair[0] + 1) * pair[1]).sum()
}

/// Scalar product in four sums, which the compiler may run side by side.
fn dot(left: &[f64], right: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (left, left_rest) = left.as_chunks::<4>();
    let (right, right_rest) = right.as_chunks::<4>();
    for (left, right) in left.iter().zip(right) {
        for lane in 0..4 {
            sums[lane] += left[lane] * right[lane];
        }
    }
    let rest: f64 = left_rest
        .iter()
        .zip(right_rest)
        .map(|(left, right)| left * right)
        .sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    /// A loss with a different weight for each output, so that swapped outputs show.
    fn loss(outputs: &[f64]) -> f64 {
        outputs
            .iter()
            .zip([0.7, -1.3, 0.4])
            .map(|(output, weight)| weight * output + 0.5 * output * output)
            .sum()
    }

    fn loss_gradient(outputs: &[f64]) -> Vec<f64> {
        outputs
            .iter()
            .zip([0.7, -1.3, 0.4])
            .map(|(output, weight)| weight + output)
            .collect()
    }

    #[test]
    fn backward_agrees_with_finite_differences() {
        for (seed, sizes) in [&[4, 7, 5, 2][..], &[4, 32, 32, 1], &[3, 3], &[2, 9, 3]]
            .into_iter()
            .enumerate()
        {
            let mut rng = StdRng::seed_from_u64(seed as u64);
            let mut network = Mlp::random(sizes, 1.0, &mut rng);
            let input: Vec<f64> = (0..sizes[0]).map(|_| rng.random_range(-1.0..1.0)).collect();
            let mut activations = network.activations();
            let output_gradient = loss_gradient(network.forward(&input, &mut activations));
            let mut gradient = vec![0.0; network.parameters().len()];
            network.backward(&output_gradient, &mut activations, &mut gradient);
            for (index, analytic) in gradient.iter().enumerate() {
                let mut shifted = |by: f64| {
                    let old = network.parameters()[index];
                    network.parameters_mut()[index] = old + by;
                    let value = loss(network.forward(&input, &mut activations));
                    network.parameters_mut()[index] = old;
                    value
                };
                let numeric = (shifted(1e-5) - shifted(-1e-5)) / 2e-5;
                assert!(
                    (numeric - analytic).abs() < 1e-8,
                    "{sizes:?}[{index}]: {numeric} is not {analytic}"
                );
            }
        }
    }

    #[test]
    fn backward_adds_to_what_is_there() {
        let network = Mlp::random(&[2, 3, 1], 1.0, &mut StdRng::seed_from_u64(1));
        let mut activations = network.activations();
        network.forward(&[0.3, -0.2], &mut activations);
        let mut once = vec![0.0; network.parameters().len()];
        network.backward(&[1.0], &mut activations, &mut once);
        let mut twice = once.clone();
        network.backward(&[1.0], &mut activations, &mut twice);
        assert!(
            once.iter()
                .zip(&twice)
                .all(|(once, twice)| (2.0 * once - twice).abs() < 1e-15)
        );
    }

    #[test]
    fn a_wrong_number_of_parameters_is_no_network() {
        assert!(Mlp::from_parameters(&[4, 2], vec![0.0; 10]).is_some());
        assert!(Mlp::from_parameters(&[4, 2], vec![0.0; 9]).is_none());
    }
}
