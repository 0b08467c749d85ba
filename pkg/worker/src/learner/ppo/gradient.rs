use candle_core::Tensor;

use crate::{
    Result,
    learner::advantage::Sample,
    model::{
        network::{Network, column_tensor, tensor_values},
        policy::Policy,
    },
};

/// Number of reported losses: policy, value, entropy.
pub(super) const LOSSES: usize = 3;

/// The weights of the loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objective {
    /// Clip range of the probability ratio.
    pub(super) clip: f64,
    /// Weight of the entropy bonus.
    pub(super) entropy: f64,
}

/// The gradient of the summed loss of the samples, followed by the summed losses.
pub(super) fn batch_gradient(
    policy: &Policy,
    samples: &[&Sample],
    objective: Objective,
) -> Result<Vec<f64>> {
    if samples.is_empty() {
        return Ok(vec![0.0; policy.parameters().len() + LOSSES]);
    }
    let network = Network::new_trainable(policy)?;
    let features = Network::feature_tensor(samples.iter().map(|sample| &*sample.observation))?;
    let of =
        |number: fn(&Sample) -> f64| column_tensor(samples.iter().map(|sample| number(sample)));
    let actions: Vec<u32> = samples.iter().map(|sample| sample.action.into()).collect();
    let actions = Tensor::from_vec(actions, (samples.len(), 1), features.device())?;

    let log_probabilities = network.log_probabilities(&features)?;
    let entropy = (log_probabilities.exp()? * &log_probabilities)?;
    let entropy = entropy.sum_all()?.neg()?;
    let taken = log_probabilities.gather(&actions, 1)?;
    let ratio = (taken - of(|sample| sample.log_probability)?)?.exp()?;
    let advantage = of(|sample| sample.advantage)?;
    let clipped = ratio.clamp(1.0 - objective.clip, 1.0 + objective.clip)?;
    let surrogate = (&ratio * &advantage)?.minimum(&(clipped * advantage)?)?;
    let policy = surrogate.sum_all()?.neg()?;
    let error = (network.state_values(&features)? - of(|sample| sample.target)?)?;
    let value = (error.sqr()?.sum_all()? * 0.5)?;
    let loss = ((&policy + &value)? - (&entropy * objective.entropy)?)?;

    let derived = loss.backward()?;
    let mut all = Vec::new();
    for parameter in network.parameters() {
        // A parameter that does not affect the loss has no gradient.
        match derived.get(parameter) {
            Some(by) => all.extend(tensor_values(by)?),
            None => all.resize(all.len() + parameter.elem_count(), 0.0),
        }
    }
    for loss in [policy, value, entropy] {
        all.push(loss.to_scalar()?);
    }
    Ok(all)
}
