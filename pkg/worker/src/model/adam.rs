//! The Adam optimiser.

const BETA1: f64 = 0.9;
const BETA2: f64 = 0.999;
const EPSILON: f64 = 1e-5;

/// Moments of the gradients; stored with the model, so that another learner can continue.
#[derive(Clone, Debug, PartialEq)]
pub struct Adam {
    /// Number of steps made.
    pub step: u64,
    /// Running mean of the gradients.
    pub mean: Vec<f64>,
    /// Running mean of their squares.
    pub square: Vec<f64>,
}

impl Adam {
    /// An optimiser for `count` parameters.
    pub fn new(count: usize) -> Self {
        Self {
            step: 0,
            mean: vec![0.0; count],
            square: vec![0.0; count],
        }
    }

    /// Moves `parameters` one step against `gradient`.
    pub fn update(&mut self, parameters: &mut [f64], gradient: &[f64], learning_rate: f64) {
        self.step += 1;
        let steps = self.step as f64;
        let rate = learning_rate * (1.0 - BETA2.powf(steps)).sqrt() / (1.0 - BETA1.powf(steps));
        let moments = self.mean.iter_mut().zip(&mut self.square);
        for ((parameter, gradient), (mean, square)) in
            parameters.iter_mut().zip(gradient).zip(moments)
        {
            *mean += (1.0 - BETA1) * (gradient - *mean);
            *square += (1.0 - BETA2) * (gradient * gradient - *square);
            *parameter -= rate * *mean / (square.sqrt() + EPSILON);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_step_length_equals_learning_rate() {
        let mut parameters = [1.0, -1.0];
        Adam::new(2).update(&mut parameters, &[3.0, -70.0], 0.01);
        assert!((parameters[0] - 0.99).abs() < 1e-5);
        assert!((parameters[1] + 0.99).abs() < 1e-5);
    }

    #[test]
    fn adam_minimises_quadratic() {
        let (mut parameters, mut adam) = ([4.0, -3.0], Adam::new(2));
        for _ in 0..2000 {
            let gradient = [2.0 * (parameters[0] - 1.0), 20.0 * parameters[1]];
            adam.update(&mut parameters, &gradient, 0.02);
        }
        assert!((parameters[0] - 1.0).abs() < 1e-3 && parameters[1].abs() < 1e-3);
    }
}
