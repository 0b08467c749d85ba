//! Proximal policy optimisation.

mod batches;
mod gradient;
mod process_group;

use std::fmt::Display;

use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    adam::Adam,
    advantage::{Sample, build_samples},
    lifecycle::Stats,
    policy::Policy,
    rollout::Trajectory,
};

use batches::Batches;
use gradient::{LOSSES, Objective, batch_gradient};
pub use process_group::{ProcessGroup, SingleProcess};

/// The settings of PPO. The defaults solve `CartPole` and `Acrobot` with each tested seed, and
/// `MountainCar` with 49 of 50.
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
    /// Maximum policy lag in versions; older frames are dropped.
    pub max_policy_lag: u64,
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
            max_policy_lag: 20,
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
            max_policy_lag: _,
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

/// Mean losses of one update.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Losses {
    /// Clipped surrogate loss of the actor.
    pub policy: f64,
    /// Squared error of the critic.
    pub value: f64,
    /// Entropy of the actor, between 0 and the logarithm of the number of actions.
    pub entropy: f64,
}

impl Losses {
    /// The losses by name.
    pub(crate) fn stats(&self) -> Stats {
        Stats::from([
            ("policy_loss".into(), self.policy),
            ("value_loss".into(), self.value),
            ("entropy".into(), self.entropy),
        ])
    }
}

/// The inputs of an update.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The frames.
    pub trajectories: &'a [Trajectory],
    /// The settings.
    pub settings: &'a Settings,
    /// Progress of the training, in 0..=1.
    pub progress: f64,
}

/// Updates `policy` with frames, together with all other ranks: each computes the gradient of its
/// shard of each batch, and all make the same step. All ranks must start with the same policy,
/// optimiser, frames and state of `rng`.
pub fn update_policy(
    policy: &mut Policy,
    adam: &mut Adam,
    step: Step<'_>,
    rng: &mut impl Rng,
    ranks: &mut impl ProcessGroup,
) -> Result<Losses> {
    let mut update = Update::new(policy, step)?;
    while update.gradient_step(policy, adam, rng, ranks)? {}
    Ok(update.mean_losses())
}

/// An update that is made one gradient step at a time.
#[derive(Debug)]
pub(crate) struct Update {
    samples: Vec<Sample>,
    batches: Batches,
    objective: Objective,
    rate: f64,
    gradient_norm: f64,
    totals: [f64; LOSSES],
    learned: usize,
}

impl Update {
    pub(crate) fn new(policy: &Policy, step: Step<'_>) -> Result<Self> {
        let Step {
            trajectories,
            settings,
            progress,
        } = step;
        let left = 1.0 - progress.clamp(0.0, 1.0);
        let samples = build_samples(policy, trajectories, settings.discount, settings.trace)?;
        Ok(Self {
            batches: Batches::new(samples.len(), settings),
            samples,
            objective: Objective {
                clip: settings.clip,
                entropy: settings.entropy * left,
            },
            rate: settings.learning_rate * left.max(0.1),
            gradient_norm: settings.gradient_norm,
            totals: [0.0; LOSSES],
            learned: 0,
        })
    }

    /// Makes the next gradient step; false when all are done.
    pub(crate) fn gradient_step(
        &mut self,
        policy: &mut Policy,
        adam: &mut Adam,
        rng: &mut impl Rng,
        ranks: &mut impl ProcessGroup,
    ) -> Result<bool> {
        let Some(batch) = self.batches.next_batch(rng) else {
            return Ok(false);
        };
        let part = batch[ranks.shard(batch.len())].iter();
        let part: Vec<_> = part.map(|index| &self.samples[*index]).collect();
        let mut sums = batch_gradient(policy, &part, self.objective)?;
        ranks.all_reduce(&mut sums)?;
        if !sums.iter().all(|sum| sum.is_finite()) {
            return Err(Error::Diverged);
        }
        let (gradient, losses) = sums.split_at_mut(policy.parameters().len());
        for (total, loss) in self.totals.iter_mut().zip(losses) {
            *total += *loss;
        }
        rescale_gradient(gradient, batch.len(), self.gradient_norm);
        adam.update(policy.parameters_mut(), gradient, self.rate);
        self.learned += batch.len();
        Ok(true)
    }

    /// Mean losses of all steps so far.
    pub(crate) fn mean_losses(&self) -> Losses {
        let count = self.learned.max(1) as f64;
        let [policy, value, entropy] = self.totals.map(|total| total / count);
        Losses {
            policy,
            value,
            entropy,
        }
    }
}

/// Turns the sum over a batch into a mean, clipped to the norm `limit`.
fn rescale_gradient(gradient: &mut [f64], batch: usize, limit: f64) {
    let norm = gradient
        .iter()
        .map(|value| value * value)
        .sum::<f64>()
        .sqrt()
        / batch as f64;
    let factor = (limit / norm.max(limit)) / batch as f64;
    for value in gradient {
        *value *= factor;
    }
}

#[cfg(test)]
mod tests;
