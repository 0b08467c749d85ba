use std::sync::Arc;

use super::{
    Signal,
    shared::{Exchange, Order, Shared},
};
use crate::{
    policy::Scratch,
    signal::{Component, Slot},
};

/// Chooses actions for the splits that wait.
pub(super) struct InferenceWorker {
    shared: Arc<Shared>,
    /// What it goes by.
    current: Option<(Arc<Order>, Scratch)>,
    workers: Vec<Slot<Signal>>,
}

impl InferenceWorker {
    pub(super) const fn new(shared: Arc<Shared>, workers: Vec<Slot<Signal>>) -> Self {
        Self {
            shared,
            current: None,
            workers,
        }
    }

    fn act(&mut self, split: usize) {
        let Some((order, scratch)) = &mut self.current else {
            return;
        };
        let (policy, width, collects) = (&order.policy, order.width(), order.collects());
        let mut exchange = self.shared.exchange(split);
        let Exchange {
            live,
            observations,
            draws,
            actions,
            log_probabilities,
        } = &mut *exchange;
        for &place in &*live {
            let seen = &observations[place * width..(place + 1) * width];
            if collects {
                let (action, log_probability) = policy.draw(seen, scratch, draws[place]);
                actions[place] = action;
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "frames are stored in single precision"
                )]
                {
                    log_probabilities[place] = log_probability as f32;
                }
            } else {
                actions[place] = policy.greedy(seen, scratch);
            }
        }
    }
}

impl Component<Signal> for InferenceWorker {
    fn take(&mut self, signal: Signal) {
        match signal {
            Signal::Begin => {
                let order = self.shared.order();
                self.current = order.map(|order| {
                    let scratch = order.policy.scratch();
                    (order, scratch)
                });
            }
            Signal::Observed(split) => {
                self.act(split);
                self.workers[self.shared.worker(split)].emit(Signal::Acted(split));
            }
            _ => {}
        }
    }
}
