//! Proximal policy optimisation.

mod batches;
mod gradient;
pub(crate) mod process_group;

use rand::Rng;

use crate::{
    Error, Result,
    learner::{
        advantage::{Sample, build_samples},
        settings::Settings,
    },
    lifecycle::report::Stats,
    model::{adam::Adam, policy::Policy},
    sampler::rollout::Trajectory,
};

use batches::Batches;
use gradient::{LOSSES, Objective, batch_gradient};
use process_group::ProcessGroup;

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
