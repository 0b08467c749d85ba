use std::{
    mem::take,
    sync::Arc,
    thread::{self, Builder, JoinHandle},
};

use crate::{
    Error, Result,
    environment::EnvFactory,
    sampler::{
        batcher::Batcher,
        event_loop::{Component, EventLoop, Slot},
        inference_worker::InferenceWorker,
        learner::Learner,
        rollout::{Evaluation, Rollout},
        rollout_worker::RolloutWorker,
        sampling::Sampling,
        shared_buffers::{DATASETS, Dataset, Order, SampleCounts, SharedBuffers, TrainingBatch},
        signal::Signal,
        vector_runner::Outputs,
    },
};

/// The running components, on the main loop or on one thread each.
pub(crate) struct RunningPipeline {
    main_loop: EventLoop<Signal>,
    shared: Arc<SharedBuffers>,
    /// The batcher, the inference workers, the rollout workers: each gets an order before its
    /// senders do.
    components: Vec<Slot<Signal>>,
    /// The rollout workers.
    workers: Vec<Slot<Signal>>,
    learner: Option<Slot<Signal>>,
    threads: Vec<Thread>,
    /// Collected steps that have not arrived.
    missing: usize,
    /// Splits that have not finished their share.
    unfinished: usize,
    /// Whether the learner has a training batch.
    learning: bool,
    /// The data set of the last order to collect.
    dataset: usize,
}

struct Thread {
    slot: Slot<Signal>,
    handle: JoinHandle<()>,
}

impl RunningPipeline {
    /// Starts the sampling components, and a learner if `learns`.
    pub(crate) fn start(sampling: &Sampling, maker: &EnvFactory, learns: bool) -> Result<Self> {
        let shared = Arc::new(SharedBuffers::new(sampling.clone()));
        let mut loops = LoopSet::new(sampling.is_serial());
        let sampler = loops.main_loop.new_slot();
        let batcher = loops.add_slot("batcher");
        let mut slots =
            |name, number| -> Vec<_> { (0..number).map(|_| loops.add_slot(name)).collect() };
        let inference = slots("inference", sampling.policy_workers_per_policy);
        let rollout = slots("rollout", sampling.num_workers);
        let learner = learns.then(|| loops.add_slot("learner"));
        let of =
            |slots: &[LoopSlot]| -> Vec<_> { slots.iter().map(|(slot, _)| slot.clone()).collect() };
        let workers = of(&rollout);

        let outputs = Outputs {
            inference: of(&inference).into(),
            batcher: batcher.0.clone(),
            sampler: sampler.clone(),
        };
        for (worker, place) in rollout.iter().enumerate() {
            let worker = RolloutWorker::new(worker, shared.clone(), maker.clone(), &outputs);
            loops.put_component(place, worker);
        }
        for place in &inference {
            let worker = InferenceWorker::new(shared.clone(), workers.clone(), sampler.clone());
            loops.put_component(place, worker);
        }
        let batching = Batcher::new(shared.clone(), workers.clone(), sampler.clone());
        loops.put_component(&batcher, batching);

        if let Some(place) = &learner {
            let (own, inference) = (place.0.clone(), of(&inference));
            let component = Learner::new(shared.clone(), own, inference, sampler.clone());
            loops.put_component(place, component);
        }

        let mut running = Self {
            main_loop: loops.main_loop,
            shared,
            components: of(&[vec![batcher], inference, rollout].concat()),
            workers,
            learner: learner.map(|(slot, _)| slot),
            threads: Vec::new(),
            missing: 0,
            unfinished: 0,
            learning: false,
            dataset: 0,
        };
        let slots = running.components.iter().chain(&running.learner);
        for (other, slot) in loops.others.into_iter().zip(slots) {
            let alarm = PanicGuard {
                name: other.name,
                sampler: sampler.clone(),
            };
            let run = move || {
                let _alarm = alarm;
                other.events.run();
            };
            let builder = Builder::new().name(other.name.to_owned());
            // On an error the other threads are dropped and end.
            let handle = builder.spawn(run).map_err(Error::Thread)?;
            let slot = slot.clone();
            running.threads.push(Thread { slot, handle });
        }
        Ok(running)
    }

    /// Publishes an order.
    pub(crate) fn begin_order(&mut self, mut order: Order) {
        self.missing = order.frame_count();
        self.unfinished = self.shared.sampling.split_count();
        if order.records_steps() && self.learner.is_some() {
            // The previous data set may be trained on meanwhile.
            self.dataset = (self.dataset + 1) % DATASETS;
        }
        order.dataset = self.dataset;
        self.shared.publish_order(order);
        for component in &self.components {
            component.emit(Signal::Begin);
        }
    }

    /// Publishes a training batch for a data set.
    pub(crate) fn submit_batch(&mut self, lesson: TrainingBatch, dataset: usize) {
        *self.shared.lock_batch() = Some(lesson);
        if let Some(learner) = &self.learner {
            self.learning = true;
            learner.emit(Signal::Learn(dataset));
        }
    }

    /// Handles signals until the order and the training batch are done.
    pub(crate) fn run_until_idle(&mut self) -> Result<()> {
        while self.missing > 0 || self.unfinished > 0 || self.learning {
            self.handle_next_signal()?;
        }
        Ok(())
    }

    fn handle_next_signal(&mut self) -> Result<()> {
        match self.main_loop.run_until_signal().ok_or(Error::TaskLeft)? {
            Signal::Dataset(dataset) => {
                self.missing -= self.shared.lock_dataset(dataset).step_count();
            }
            Signal::Passed(block) => {
                let mut dataset = self.shared.lock_dataset(self.dataset);
                self.missing -= dataset.place_steps(&self.shared.lock_buffer(block));
                drop(dataset);
                let (split, _) = self.shared.buffer_owner(block);
                self.workers[self.shared.worker_of_split(split)].emit(Signal::Freed(block));
            }
            Signal::Finished(_) => self.unfinished -= 1,
            Signal::Learned => self.learning = false,
            Signal::Failed => return Err(self.shared.take_failure().unwrap_or(Error::TaskLeft)),
            Signal::Lost(name) => return Err(Error::Panicked(name)),
            _ => {}
        }
        Ok(())
    }

    /// The collected trajectories.
    pub(crate) fn take_rollout(&self) -> Rollout {
        Rollout {
            trajectories: self.shared.lock_dataset(self.dataset).to_trajectories(),
            returns: self.take_counts().sorted_returns(),
        }
    }

    /// The collected data set, for a training batch. It is unchanged until the second next order to
    /// collect.
    pub(crate) fn current_dataset(&self) -> Dataset {
        Dataset {
            number: self.dataset,
            frames: self.shared.lock_dataset(self.dataset).step_count() as u64,
            returns: self.take_counts().sorted_returns(),
        }
    }

    /// The result of an evaluation.
    pub(crate) fn take_evaluation(&self) -> Evaluation {
        let tally = self.take_counts();
        Evaluation {
            frames: tally.frames,
            returns: tally.sorted_returns(),
        }
    }

    /// The trained batch.
    pub(crate) fn take_batch(&self) -> Option<TrainingBatch> {
        self.shared.lock_batch().take()
    }

    fn take_counts(&self) -> SampleCounts {
        let mut tally = SampleCounts::default();
        for split in 0..self.shared.sampling.split_count() {
            tally.add_counts(take(&mut *self.shared.lock_counts(split)));
        }
        tally
    }
}

impl Drop for RunningPipeline {
    /// Stops the threads and waits for them.
    fn drop(&mut self) {
        for thread in &self.threads {
            thread.slot.stop();
        }
        for thread in self.threads.drain(..) {
            // A panic was reported when it happened.
            thread.handle.join().ok();
        }
    }
}

/// The event loops during the setup.
struct LoopSet {
    main_loop: EventLoop<Signal>,
    serial: bool,
    others: Vec<Other>,
}

struct Other {
    name: &'static str,
    events: EventLoop<Signal>,
}

/// A slot and the index of its thread's loop; none for the main loop.
type LoopSlot = (Slot<Signal>, Option<usize>);

impl LoopSet {
    fn new(serial: bool) -> Self {
        Self {
            main_loop: EventLoop::default(),
            serial,
            others: Vec::new(),
        }
    }

    fn add_slot(&mut self, name: &'static str) -> LoopSlot {
        if self.serial {
            return (self.main_loop.new_slot(), None);
        }
        let mut events = EventLoop::default();
        let slot = events.new_slot();
        self.others.push(Other { name, events });
        (slot, Some(self.others.len() - 1))
    }

    fn put_component(
        &mut self,
        (slot, other): &LoopSlot,
        component: impl Component<Signal> + 'static,
    ) {
        let events = match other {
            Some(other) => &mut self.others[*other].events,
            None => &mut self.main_loop,
        };
        events.put_component(slot, component);
    }
}

/// Reports a panic of its thread.
struct PanicGuard {
    name: &'static str,
    sampler: Slot<Signal>,
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            self.sampler.emit(Signal::Lost(self.name));
        }
    }
}
