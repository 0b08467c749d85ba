//! The model: an actor that chooses and a critic that judges.

use rand::{Rng, RngExt};

use crate::{
    cartpole::Observation,
    mlp::{Activations, Mlp, parameter_count},
};

/// Width of the two hidden layers of each network.
const HIDDEN: usize = 32;
/// Layer sizes of the actor: observation to one logit per action.
pub(crate) const ACTOR: [usize; 4] = [4, HIDDEN, HIDDEN, 2];
/// Layer sizes of the critic: observation to expected return.
pub(crate) const CRITIC: [usize; 4] = [4, HIDDEN, HIDDEN, 1];
/// Brings position, velocity, angle and angular velocity to about the same size, which training
/// likes.
const SCALE: [f64; 4] = [0.4, 0.5, 5.0, 0.5];

/// Actor and critic for `CartPole`.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub(crate) actor: Mlp,
    pub(crate) critic: Mlp,
}

/// Buffers for the passes through a policy.
#[derive(Clone, Debug)]
pub struct Scratch {
    pub(crate) actor: Activations,
    pub(crate) critic: Activations,
}

impl Policy {
    /// A policy that knows nothing and so chooses about evenly.
    pub fn random(rng: &mut impl Rng) -> Self {
        Self {
            actor: Mlp::random(&ACTOR, 0.01, rng),
            critic: Mlp::random(&CRITIC, 1.0, rng),
        }
    }

    /// A policy with given parameters, actor first, if their number is right.
    pub fn from_parameters(mut parameters: Vec<f64>) -> Option<Self> {
        let actors = parameter_count(&ACTOR);
        if parameters.len() < actors {
            return None;
        }
        let critic = Mlp::from_parameters(&CRITIC, parameters.split_off(actors))?;
        Some(Self {
            actor: Mlp::from_parameters(&ACTOR, parameters)?,
            critic,
        })
    }

    /// All parameters, actor first.
    pub fn parameters(&self) -> impl Iterator<Item = &f64> {
        self.actor
            .parameters()
            .iter()
            .chain(self.critic.parameters())
    }

    /// All parameters, actor first, for an optimiser.
    pub fn parameters_mut(&mut self) -> impl Iterator<Item = &mut f64> {
        self.actor
            .parameters_mut()
            .iter_mut()
            .chain(self.critic.parameters_mut())
    }

    /// Number of parameters of every policy.
    pub fn parameter_count() -> usize {
        parameter_count(&ACTOR) + parameter_count(&CRITIC)
    }

    /// Buffers for the passes through this policy.
    pub fn scratch(&self) -> Scratch {
        Scratch {
            actor: self.actor.activations(),
            critic: self.critic.activations(),
        }
    }

    /// Logarithms of the probabilities of the two actions.
    pub fn log_probabilities(&self, observation: &Observation, scratch: &mut Scratch) -> [f64; 2] {
        let logits = self
            .actor
            .forward(&features(observation), &mut scratch.actor);
        let larger = logits[0].max(logits[1]);
        let normaliser = larger + ((logits[0] - larger).exp() + (logits[1] - larger).exp()).ln();
        [logits[0] - normaliser, logits[1] - normaliser]
    }

    /// Expected (discounted, scaled) return from here.
    pub fn value(&self, observation: &Observation, scratch: &mut Scratch) -> f64 {
        self.critic
            .forward(&features(observation), &mut scratch.critic)[0]
    }

    /// Draws an action; returns it with the logarithm of its probability.
    pub fn sample(
        &self,
        observation: &Observation,
        scratch: &mut Scratch,
        rng: &mut impl Rng,
    ) -> (u8, f64) {
        let log_probabilities = self.log_probabilities(observation, scratch);
        let action = u8::from(rng.random::<f64>() < log_probabilities[1].exp());
        (action, log_probabilities[usize::from(action)])
    }

    /// The likelier action.
    pub fn greedy(&self, observation: &Observation, scratch: &mut Scratch) -> u8 {
        let logits = self
            .actor
            .forward(&features(observation), &mut scratch.actor);
        u8::from(logits[1] > logits[0])
    }
}

fn features(observation: &Observation) -> [f64; 4] {
    std::array::from_fn(|index| SCALE[index] * f64::from(observation[index]))
}
