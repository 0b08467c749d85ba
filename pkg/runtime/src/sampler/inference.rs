use std::sync::Arc;

use super::{
    Signal,
    shared::{Exchange, Order, Shared},
};
use crate::{
    Result,
    choice::{drawn, likeliest},
    signal::{Component, Slot},
};

/// Chooses actions for the splits that wait, for all environments of one at once.
pub(super) struct InferenceWorker {
    shared: Arc<Shared>,
    /// What it goes by.
    order: Option<Arc<Order>>,
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
            workers,
            sampler,
        }
    }

    fn act(&self, split: usize) -> Result<()> {
        let Some(order) = &self.order else {
            return Ok(());
        };
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
        let logits = order.network.logits(seen)?;
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
            Signal::Begin => self.order = self.shared.order(),
            Signal::Observed(split) => match self.act(split) {
                Ok(()) => self.workers[self.shared.worker(split)].emit(Signal::Acted(split)),
                Err(error) => {
                    *self.shared.failure() = Some(error);
                    self.sampler.emit(Signal::Failed);
                }
            },
            _ => {}
        }
    }
}
