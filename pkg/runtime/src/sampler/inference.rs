use std::sync::Arc;

use super::{
    Signal,
    shared::{Exchange, Order, Shared},
};
use crate::{
    Result,
    choice::{drawn, likeliest},
    network::Network,
    signal::{Component, Slot},
};

/// Chooses actions for the splits that wait, for all environments of one at once.
pub(super) struct InferenceWorker {
    shared: Arc<Shared>,
    /// What it goes by.
    order: Option<Arc<Order>>,
    /// The buffer of weights that are newer than those that it acts by.
    published: Option<usize>,
    /// What it acts by where that is newer than the order.
    newer: Option<Network>,
    workers: Vec<Slot<Signal>>,
    sampler: Slot<Signal>,
}

impl InferenceWorker {
    pub(super) const fn new(
        shared: Arc<Shared>,
        workers: Vec<Slot<Signal>>,
        sampler: Slot<Signal>,
    ) -> Self {
        Self {
            shared,
            order: None,
            published: None,
            newer: None,
            workers,
            sampler,
        }
    }

    fn act(&mut self, split: usize) -> Result<()> {
        let Some(order) = &self.order else {
            return Ok(());
        };
        // What is evaluated stays the same.
        if let Some(buffer) = self.published.take_if(|_| order.collects()) {
            let weights = self.shared.weights(buffer);
            self.newer = weights.as_ref().map(Network::new).transpose()?;
        }
        let network = self.newer.as_ref().unwrap_or(&order.network);
        let width = order.width();
        let mut exchange = self.shared.exchange(split);
        let Exchange {
            live,
            observations,
            draws,
            actions,
            log_probabilities,
        } = &mut *exchange;
        let seen = live
            .iter()
            .map(|place| &observations[place * width..(place + 1) * width]);
        let logits = network.logits(seen)?;
        let of_each = logits.chunks_exact(logits.len() / live.len());
        for (&place, logits) in live.iter().zip(of_each) {
            if order.collects() {
                let (action, log_probability) = drawn(logits, draws[place]);
                actions[place] = action;
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "frames are stored in single precision"
                )]
                {
                    log_probabilities[place] = log_probability as f32;
                }
            } else {
                actions[place] = likeliest(logits);
            }
        }
        Ok(())
    }
}

impl Component<Signal> for InferenceWorker {
    fn take(&mut self, signal: Signal) {
        match signal {
            Signal::Begin => {
                self.order = self.shared.order();
                (self.published, self.newer) = (None, None);
            }
            Signal::Published(buffer) => self.published = Some(buffer),
            Signal::Observed(split) => match self.act(split) {
                Ok(()) => self.workers[self.shared.worker(split)].emit(Signal::Acted(split)),
                Err(error) => {
                    self.shared.fail(error);
                    self.sampler.emit(Signal::Failed);
                }
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;
    use crate::{game::Game, policy::Policy, sampling::Sampling, signal::EventLoop, wire::Work};

    #[test]
    fn newer_weights_are_collected_with_at_once_and_never_evaluated() {
        let mut rng = StdRng::seed_from_u64(1);
        let [old, new] = [(); 2].map(|()| Policy::random(Game::CartPole, &mut rng));
        let shared = Arc::new(Shared::new(Sampling::default()));
        let mut home = EventLoop::default();
        let (told, own) = (home.slot(), home.slot());
        let worker = InferenceWorker::new(shared.clone(), vec![told.clone()], told);
        home.put(&own, worker);
        let observation = [0.3, -0.4, 0.05, 0.6];
        let mut acts = |work, published: bool| {
            shared.publish(Order::new(&old, work, 0).unwrap());
            own.emit(Signal::Begin);
            if published {
                shared.write_weights(1, &new);
                own.emit(Signal::Published(1));
            }
            let mut exchange = shared.exchange(0);
            exchange.shape(1, observation.len());
            exchange.live.push(0);
            exchange.observations.copy_from_slice(&observation);
            exchange.draws[0] = 0.5;
            exchange.log_probabilities[0] = 0.0;
            drop(exchange);
            own.emit(Signal::Observed(0));
            assert_eq!(home.hear(), Some(Signal::Acted(0)));
            shared.exchange(0).log_probabilities[0]
        };
        let collect = Work::Collect { frames: 1 };
        let (before, after) = (acts(collect, false), acts(collect, true));
        assert_ne!(before.to_bits(), after.to_bits());
        assert_eq!(
            acts(collect, false).to_bits(),
            before.to_bits(),
            "an order has weights to begin with"
        );
        let evaluate = Work::Evaluate { episodes: 1 };
        acts(evaluate, true);
        assert_eq!(acts(collect, false).to_bits(), before.to_bits(),);
    }
}
