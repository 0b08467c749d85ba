use std::sync::Arc;

use crate::{
    Result,
    environment::OBSERVATION_SIZE,
    model::network::Network,
    sampler::{
        action_choice::{draw_action, likeliest_action},
        event_loop::{Component, Slot},
        shared_buffers::{ActionExchange, Order, SharedBuffers},
        signal::Signal,
    },
};

/// Chooses actions, for all waiting environments of a split at once.
pub(super) struct InferenceWorker {
    shared: Arc<SharedBuffers>,
    /// The current order.
    order: Option<Arc<Order>>,
    /// The buffer with newer weights.
    published: Option<usize>,
    /// The network of newer weights.
    newer: Option<Network>,
    workers: Vec<Slot<Signal>>,
    sampler: Slot<Signal>,
}

impl InferenceWorker {
    pub(super) const fn new(
        shared: Arc<SharedBuffers>,
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

    fn choose_actions(&mut self, split: usize) -> Result<()> {
        let Some(order) = &self.order else {
            return Ok(());
        };
        // An evaluation uses the weights of its order only.
        if let Some(buffer) = self.published.take_if(|_| order.records_steps()) {
            let weights = self.shared.lock_weights(buffer);
            self.newer = weights.as_ref().map(Network::new).transpose()?;
        }
        let network = self.newer.as_ref().unwrap_or(&order.network);
        let width = OBSERVATION_SIZE;
        let mut exchange = self.shared.lock_exchange(split);
        let ActionExchange {
            live,
            observations,
            draws,
            actions,
            log_probabilities,
        } = &mut *exchange;
        let seen = live
            .iter()
            .map(|place| &observations[place * width..(place + 1) * width]);
        let logits = network.action_logits(seen)?;
        let of_each = logits.chunks_exact(logits.len() / live.len());
        for (&place, logits) in live.iter().zip(of_each) {
            if order.records_steps() {
                let (action, log_probability) = draw_action(logits, draws[place]);
                actions[place] = action;
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "frames are stored in single precision"
                )]
                {
                    log_probabilities[place] = log_probability as f32;
                }
            } else {
                actions[place] = likeliest_action(logits);
            }
        }
        Ok(())
    }
}

impl Component<Signal> for InferenceWorker {
    fn handle_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Begin => {
                self.order = self.shared.current_order();
                (self.published, self.newer) = (None, None);
            }
            Signal::Published(buffer) => self.published = Some(buffer),
            Signal::Observed(split) => match self.choose_actions(split) {
                Ok(()) => {
                    self.workers[self.shared.worker_of_split(split)].emit(Signal::Acted(split));
                }
                Err(error) => {
                    self.shared.set_failure(error);
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
    use crate::{
        model::policy::Policy,
        protocol::wire::Work,
        sampler::{event_loop::EventLoop, sampling::Sampling},
    };

    #[test]
    fn new_weights_are_used_for_collecting_only() {
        let mut rng = StdRng::seed_from_u64(1);
        let [old, new] = [(); 2].map(|()| Policy::random(&mut rng));
        let shared = Arc::new(SharedBuffers::new(Sampling::default()));
        let mut main_loop = EventLoop::default();
        let (outbox, own) = (main_loop.new_slot(), main_loop.new_slot());
        let worker = InferenceWorker::new(shared.clone(), vec![outbox.clone()], outbox);
        main_loop.put_component(&own, worker);
        let observation = [0.3, -0.4, 0.05, 0.6];
        let mut acts = |work, published: bool| {
            shared.publish_order(Order::new(&old, work, 0).unwrap());
            own.emit(Signal::Begin);
            if published {
                shared.write_weights(1, &new);
                own.emit(Signal::Published(1));
            }
            let mut exchange = shared.lock_exchange(0);
            exchange.reset_shape(1, observation.len());
            exchange.live.push(0);
            exchange.observations.copy_from_slice(&observation);
            exchange.draws[0] = 0.5;
            exchange.log_probabilities[0] = 0.0;
            drop(exchange);
            own.emit(Signal::Observed(0));
            assert_eq!(main_loop.run_until_signal(), Some(Signal::Acted(0)));
            shared.lock_exchange(0).log_probabilities[0]
        };
        let collect = Work::Collect { frames: 1 };
        let (before, after) = (acts(collect, false), acts(collect, true));
        assert_ne!(before.to_bits(), after.to_bits());
        assert_eq!(
            acts(collect, false).to_bits(),
            before.to_bits(),
            "an order starts with its own weights"
        );
        let evaluate = Work::Evaluate { episodes: 1 };
        acts(evaluate, true);
        assert_eq!(acts(collect, false).to_bits(), before.to_bits(),);
    }
}
