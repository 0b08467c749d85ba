use std::sync::Arc;

use crate::{
    environment::EnvFactory,
    sampler::{
        event_loop::Component,
        shared_buffers::SharedBuffers,
        signal::Signal,
        vector_runner::{Outputs, VectorRunner},
    },
};

/// Steps environments: one split at a time, when its actions arrive.
pub(super) struct RolloutWorker {
    shared: Arc<SharedBuffers>,
    maker: EnvFactory,
    /// First split of this worker.
    first: usize,
    runners: Vec<VectorRunner>,
}

impl RolloutWorker {
    pub(super) fn new(
        worker: usize,
        shared: Arc<SharedBuffers>,
        maker: EnvFactory,
        outputs: &Outputs,
    ) -> Self {
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
    fn handle_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Begin => {
                let Some(order) = self.shared.current_order() else {
                    return;
                };
                for runner in &mut self.runners {
                    runner.begin_order(&order, &self.maker);
                }
            }
            Signal::Acted(split) => self.runners[split - self.first].step_all(),
            Signal::Freed(block) => {
                let (split, lane) = self.shared.buffer_owner(block);
                self.runners[split - self.first].return_buffer(block, lane);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;
    use crate::environment::cartpole_factory;
    use crate::{
        model::policy::Policy,
        protocol::wire::Work,
        sampler::{
            event_loop::{EventLoop, Slot},
            inference_worker::InferenceWorker,
            sampling::Sampling,
            shared_buffers::Order,
        },
    };

    /// Shared buffers with a published order.
    fn shared_with_order(sampling: Sampling) -> Arc<SharedBuffers> {
        let shared = Arc::new(SharedBuffers::new(sampling));
        let policy = Policy::random(&mut StdRng::seed_from_u64(1));
        let work = Work::Collect { frames: 16 };
        shared.publish_order(Order::new(&policy, work, 0).unwrap());
        shared
    }

    struct Stage {
        main_loop: EventLoop<Signal>,
        outbox: Slot<Signal>,
        worker: Slot<Signal>,
    }

    /// A worker with or without an inference worker; all other signals arrive at the main loop.
    fn new_worker(sampling: Sampling, acts: bool) -> Stage {
        let shared = shared_with_order(sampling);
        let mut main_loop = EventLoop::default();
        let (outbox, worker, inference) = (
            main_loop.new_slot(),
            main_loop.new_slot(),
            main_loop.new_slot(),
        );
        let outputs = Outputs {
            inference: [inference.clone()].into(),
            batcher: outbox.clone(),
            sampler: outbox.clone(),
        };
        main_loop.put_component(
            &worker,
            RolloutWorker::new(0, shared.clone(), cartpole_factory(), &outputs),
        );
        if acts {
            main_loop.put_component(
                &inference,
                InferenceWorker::new(shared.clone(), vec![worker.clone()], outbox.clone()),
            );
            inference.emit(Signal::Begin);
        }
        worker.emit(Signal::Begin);
        Stage {
            main_loop,
            outbox,
            worker,
        }
    }

    #[test]
    fn split_waits_for_actions_while_other_is_stepped() {
        let Stage {
            mut main_loop,
            worker,
            ..
        } = new_worker(Sampling::default(), false);
        let both = [main_loop.run_until_signal(), main_loop.run_until_signal()];
        assert_eq!(both, [0, 1].map(|split| Some(Signal::Observed(split))));
        worker.emit(Signal::Acted(1));
        assert_eq!(
            main_loop.run_until_signal(),
            Some(Signal::Observed(1)),
            "it does not wait for the other split"
        );
    }

    #[test]
    fn splits_are_distributed_over_inference_workers() {
        let mut main_loop = EventLoop::default();
        let outbox = main_loop.new_slot();
        let mut both = [EventLoop::default(), EventLoop::default()];
        let outputs = Outputs {
            inference: both.each_mut().map(EventLoop::new_slot).into(),
            batcher: outbox.clone(),
            sampler: outbox,
        };
        let shared = shared_with_order(Sampling::default());
        RolloutWorker::new(0, shared, cartpole_factory(), &outputs).handle_signal(Signal::Begin);
        for (split, inference) in both.iter_mut().enumerate() {
            assert_eq!(inference.run_until_signal(), Some(Signal::Observed(split)));
        }
    }

    #[test]
    fn worker_waits_for_free_trajectory_buffer() {
        let sampling = Sampling {
            num_envs_per_worker: 1,
            worker_num_splits: 1,
            rollout: 4,
            ..Sampling::default()
        };
        let Stage {
            mut main_loop,
            outbox,
            worker,
        } = new_worker(sampling, true);
        let (first, second) = (
            main_loop.run_until_signal().unwrap(),
            main_loop.run_until_signal().unwrap(),
        );
        assert_ne!(first, second);
        // The first turn chooses the actions, the second receives them.
        for _ in 0..2 {
            outbox.emit(Signal::Begin);
            assert_eq!(
                main_loop.run_until_signal(),
                Some(Signal::Begin),
                "no other signal"
            );
        }
        for filled in [first, second] {
            let Signal::Filled(block) = filled else {
                panic!("{filled:?}");
            };
            worker.emit(Signal::Freed(block));
            assert_eq!(
                main_loop.run_until_signal(),
                Some(filled),
                "the freed buffer is filled again"
            );
        }
        assert_eq!(main_loop.run_until_signal(), Some(Signal::Finished(0)));
    }
}
