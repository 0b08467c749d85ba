//! The settings of PPO.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The settings of PPO. The defaults solve `CartPole` with each tested seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Learning rate at the start; decreases linearly to a tenth.
    pub learning_rate: f64,
    /// Discount factor per step.
    pub discount: f64,
    /// GAE lambda: 0 uses the critic's estimate, 1 the observed return.
    pub trace: f64,
    /// Clip range of the probability ratio.
    pub clip: f64,
    /// Passes over each data set.
    pub num_epochs: usize,
    /// Frames per gradient step.
    pub batch_size: usize,
    /// Gradient steps per pass: frames are split into data sets of this many batches. Unset: one
    /// data set.
    pub num_batches_per_epoch: Option<usize>,
    /// Entropy bonus at the start; decreases linearly to 0.
    pub entropy: f64,
    /// Maximum norm of the gradient.
    pub gradient_norm: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            learning_rate: 3e-4,
            discount: 0.99,
            trace: 0.95,
            clip: 0.2,
            num_epochs: 5,
            batch_size: 64,
            num_batches_per_epoch: None,
            entropy: 0.005,
            gradient_norm: 0.5,
        }
    }
}

impl Settings {
    /// Checks the ranges of all fields.
    pub fn check(&self) -> Result<()> {
        let Self {
            learning_rate,
            discount,
            trace,
            clip,
            num_epochs,
            batch_size,
            num_batches_per_epoch,
            entropy,
            gradient_norm,
        } = self;
        let above = |number: f64| number.is_finite() && number > 0.0;
        let is_share = |number| (0.0..=1.0).contains(&number);
        let batches = num_batches_per_epoch.unwrap_or(1);
        let rules: [(&str, &dyn Display, bool, &str); 9] = [
            ("learning_rate", learning_rate, above(*learning_rate), ABOVE),
            ("discount", discount, is_share(*discount), SHARE),
            ("trace", trace, is_share(*trace), SHARE),
            ("clip", clip, above(*clip), ABOVE),
            (
                "num_epochs",
                num_epochs,
                (1..=1000).contains(num_epochs),
                "in 1..=1000",
            ),
            ("batch_size", batch_size, *batch_size > 0, ABOVE),
            ("num_batches_per_epoch", &batches, batches > 0, ABOVE),
            ("entropy", entropy, entropy.is_finite(), "a number"),
            ("gradient_norm", gradient_norm, above(*gradient_norm), ABOVE),
        ];
        match rules.into_iter().find(|(_, _, valid, _)| !valid) {
            Some((name, value, _, rule)) => Err(Error::BadConfig(format!(
                "{name} must be {rule}, but is {value}"
            ))),
            None => Ok(()),
        }
    }
}

const ABOVE: &str = "above 0";
const SHARE: &str = "in 0..=1";
