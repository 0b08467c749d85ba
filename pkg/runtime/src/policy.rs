//! The model: an actor that chooses and a critic that judges.

use rand::Rng;

use crate::{
    game::Game,
    mlp::{Activations, Mlp, parameter_count},
};

/// Width of the two hidden layers of each network that is stored.
const HIDDEN: usize = 32;

/// Actor and critic for a game.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    game: Game,
    pub(crate) actor: Mlp,
    pub(crate) critic: Mlp,
}

/// Buffers for the passes through a policy.
#[derive(Clone, Debug)]
pub struct Scratch {
    features: Vec<f64>,
    /// Of each action, once [`Policy::choose`] has run.
    pub(crate) log_probabilities: Vec<f64>,
    /// A number per action, for whoever needs some.
    pub(crate) by_action: Vec<f64>,
    pub(crate) actor: Activations,
    pub(crate) critic: Activations,
}

impl Policy {
    /// A policy that knows nothing and so chooses about evenly.
    pub fn random(game: Game, rng: &mut impl Rng) -> Self {
        Self::of_width(game, HIDDEN, rng)
    }

    /// One whose hidden layers have another width than those that are stored: to see what that costs.
    pub fn of_width(game: Game, hidden: usize, rng: &mut impl Rng) -> Self {
        Self {
            game,
            actor: Mlp::random(&actor(game, hidden), 0.01, rng),
            critic: Mlp::random(&critic(game, hidden), 1.0, rng),
        }
    }

    /// A policy with given parameters, actor first, if their number is right.
    pub fn from_parameters(game: Game, mut parameters: Vec<f64>) -> Option<Self> {
        let actors = parameter_count(&actor(game, HIDDEN));
        if parameters.len() < actors {
            return None;
        }
        let critic = Mlp::from_parameters(&critic(game, HIDDEN), parameters.split_off(actors))?;
        Some(Self {
            game,
            actor: Mlp::from_parameters(&actor(game, HIDDEN), parameters)?,
            critic,
        })
    }

    /// What it plays.
    pub const fn game(&self) -> Game {
        self.game
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

    /// Number of parameters of every policy for this game.
    pub fn parameter_count(game: Game) -> usize {
        parameter_count(&actor(game, HIDDEN)) + parameter_count(&critic(game, HIDDEN))
    }

    /// Buffers for the passes through this policy.
    pub fn scratch(&self) -> Scratch {
        let rules = self.game.rules();
        Scratch {
            features: vec![0.0; rules.observation()],
            log_probabilities: vec![0.0; rules.actions],
            by_action: vec![0.0; rules.actions],
            actor: self.actor.activations(),
            critic: self.critic.activations(),
        }
    }

    /// Logarithms of the probabilities of the actions.
    pub fn choose<'a>(&self, observation: &[f32], scratch: &'a mut Scratch) -> &'a [f64] {
        self.look(observation, scratch);
        let logits = self.actor.forward(&scratch.features, &mut scratch.actor);
        let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|logit| (logit - largest).exp()).sum();
        let normaliser = largest + sum.ln();
        for (log_probability, logit) in scratch.log_probabilities.iter_mut().zip(logits) {
            *log_probability = logit - normaliser;
        }
        &scratch.log_probabilities
    }

    /// Expected (discounted, scaled) return from here.
    pub fn value(&self, observation: &[f32], scratch: &mut Scratch) -> f64 {
        self.look(observation, scratch);
        self.critic.forward(&scratch.features, &mut scratch.critic)[0]
    }

    /// The action that a number stands for which was drawn from 0..1; returns it with the logarithm of its probability.
    pub fn draw(&self, observation: &[f32], scratch: &mut Scratch, mut drawn: f64) -> (u8, f64) {
        let log_probabilities = self.choose(observation, scratch);
        let mut action = log_probabilities.len() - 1;
        while action > 0 {
            let probability = log_probabilities[action].exp();
            if drawn < probability {
                break;
            }
            drawn -= probability;
            action -= 1;
        }
        (number(action), log_probabilities[action])
    }

    /// The likeliest action.
    pub fn greedy(&self, observation: &[f32], scratch: &mut Scratch) -> u8 {
        self.look(observation, scratch);
        let logits = self.actor.forward(&scratch.features, &mut scratch.actor);
        let better = |best: usize, action: usize| {
            if logits[action] > logits[best] {
                action
            } else {
                best
            }
        };
        number((1..logits.len()).fold(0, better))
    }

    fn look(&self, observation: &[f32], scratch: &mut Scratch) {
        let scaled = observation.iter().zip(self.game.rules().scale);
        for (feature, (value, scale)) in scratch.features.iter_mut().zip(scaled) {
            *feature = scale * f64::from(*value);
        }
    }
}

/// Layer sizes of the actor: observation to one logit per action.
const fn actor(game: Game, hidden: usize) -> [usize; 4] {
    let rules = game.rules();
    [rules.observation(), hidden, hidden, rules.actions]
}

/// Layer sizes of the critic: observation to expected return.
const fn critic(game: Game, hidden: usize) -> [usize; 4] {
    [game.rules().observation(), hidden, hidden, 1]
}

fn number(action: usize) -> u8 {
    u8::try_from(action).expect("a game has few actions")
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn actions_are_drawn_as_often_as_they_are_likely() {
        let mut rng = StdRng::seed_from_u64(2);
        let mut policy = Policy::random(Game::Acrobot, &mut rng);
        let biases = policy.actor.parameters().len() - 3;
        policy.actor.parameters_mut()[biases..].copy_from_slice(&[1.0, 0.0, -1.0]);
        let (observation, mut scratch) = ([0.1; 6], policy.scratch());
        let likely: Vec<f64> = policy
            .choose(&observation, &mut scratch)
            .iter()
            .map(|value| value.exp())
            .collect();
        assert!((likely.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(likely[0] > 0.5 && likely[1] > likely[2]);
        assert_eq!(policy.greedy(&observation, &mut scratch), 0);
        let mut drawn = [0.0; 3];
        for _ in 0..10_000 {
            let (action, log_probability) = policy.draw(&observation, &mut scratch, rng.random());
            drawn[usize::from(action)] += 1e-4;
            assert!((log_probability.exp() - likely[usize::from(action)]).abs() < 1e-12);
        }
        for (drawn, likely) in drawn.iter().zip(likely) {
            assert!((drawn - likely).abs() < 0.02, "{drawn} is not {likely}");
        }
    }
}
