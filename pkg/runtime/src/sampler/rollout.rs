use std::sync::Arc;

use super::{
    Maker, Signal,
    shared::Shared,
    vector::{Outputs, VectorRunner},
};
use crate::signal::Component;

/// Steps environments: a split at a time, as the actions come.
pub(super) struct RolloutWorker {
    shared: Arc<Shared>,
    maker: Maker,
    /// Its first split.
    first: usize,
    runners: Vec<VectorRunner>,
}

impl RolloutWorker {
    pub(super) fn new(worker: usize, shared: Arc<Shared>, maker: Maker, outputs: &Outputs) -> Self {
        let splits = shared.sampling.worker_num_splits;
        let first = worker * splits;
        let runner = |split| VectorRunner::new(split, shared.clone(), outputs.clone());
        Self {
            runners: (first..first + splits).map(runner).collect(),
            shared,
            maker,
            first,
        }
    }
}

impl Component<Signal> for RolloutWorker {
    fn take(&mut self, signal: Signal) {
        match signal {
            Signal::Begin => {
                let Some(order) = self.shared.order() else {
                    return;
                };
                for runner in &mut self.runners {
                    runner.begin(&order, &self.maker);
                }
            }
            Signal::Acted(split) => self.runners[split - self.first].advance(),
            Signal::Freed(block) => {
                let (split, lane) = self.shared.owner(block);
                self.runners[split - self.first].take_back(block, lane);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;
    use crate::{
        game::Game,
        policy::Policy,
        sampler::{gymnasium, inference::InferenceWorker, shared::Order},
        sampling::Sampling,
        signal::{EventLoop, Slot},
        wire::Work,
    };

    /// What is shared, with an order.
    fn ordered(sampling: Sampling) -> Arc<Shared> {
        let shared = Arc::new(Shared::new(sampling));
        let policy = Policy::random(Game::CartPole, &mut StdRng::seed_from_u64(1));
        let work = Work::Collect { frames: 16 };
        shared.publish(Order::new(&policy, work, 0).unwrap());
        shared
    }

    struct Stage {
        home: EventLoop<Signal>,
        told: Slot<Signal>,
        worker: Slot<Signal>,
        shared: Arc<Shared>,
    }

    /// A worker, with or without actions for it; all else goes to whoever runs the loop.
    fn worker(sampling: Sampling, acts: bool) -> Stage {
        let shared = ordered(sampling);
        let mut home = EventLoop::default();
        let (told, worker, inference) = (home.slot(), home.slot(), home.slot());
        let outputs = Outputs {
            inference: [inference.clone()].into(),
            batcher: told.clone(),
            sampler: told.clone(),
        };
        home.put(
            &worker,
            RolloutWorker::new(0, shared.clone(), gymnasium(), &outputs),
        );
        if acts {
            home.put(
                &inference,
                InferenceWorker::new(shared.clone(), vec![worker.clone()], told.clone()),
            );
            inference.emit(Signal::Begin);
        }
        worker.emit(Signal::Begin);
        Stage {
            home,
            told,
            worker,
            shared,
        }
    }

    #[test]
    fn one_split_waits_for_its_actions_while_another_is_stepped() {
        let Stage {
            mut home, worker, ..
        } = worker(Sampling::default(), false);
        let both = [home.hear(), home.hear()];
        assert_eq!(both, [0, 1].map(|split| Some(Signal::Observed(split))));
        worker.emit(Signal::Acted(1));
        assert_eq!(
            home.hear(),
            Some(Signal::Observed(1)),
            "it needs nothing of the other"
        );
    }

    #[test]
    fn its_splits_are_shared_out_among_the_inference_workers() {
        let mut home = EventLoop::default();
        let told = home.slot();
        let mut both = [EventLoop::default(), EventLoop::default()];
        let outputs = Outputs {
            inference: both.each_mut().map(EventLoop::slot).into(),
            batcher: told.clone(),
            sampler: told,
        };
        let shared = ordered(Sampling::default());
        RolloutWorker::new(0, shared, gymnasium(), &outputs).take(Signal::Begin);
        for (split, inference) in both.iter_mut().enumerate() {
            assert_eq!(inference.hear(), Some(Signal::Observed(split)));
        }
    }

    #[test]
    fn it_waits_for_a_trajectory_buffer_that_may_be_filled_again() {
        let sampling = Sampling {
            num_envs_per_worker: 1,
            worker_num_splits: 1,
            rollout: 4,
            ..Sampling::default()
        };
        let Stage {
            mut home,
            told,
            worker,
            shared,
        } = worker(sampling, true);
        let (first, second) = (home.hear().unwrap(), home.hear().unwrap());
        assert_eq!(shared.lent(), 2, "there are no more");
        assert_ne!(first, second);
        // The observations are answered in the first turn, and the answer is taken in the second.
        for _ in 0..2 {
            told.emit(Signal::Begin);
            assert_eq!(home.hear(), Some(Signal::Begin), "nothing else comes");
        }
        for filled in [first, second] {
            let Signal::Filled(block) = filled else {
                panic!("{filled:?}");
            };
            worker.emit(Signal::Freed(block));
            assert_eq!(home.hear(), Some(filled), "that one again");
        }
        assert_eq!(home.hear(), Some(Signal::Finished(0)));
    }
}
