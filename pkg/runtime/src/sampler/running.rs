use std::{
    mem::take,
    sync::Arc,
    thread::{self, Builder, JoinHandle},
};

use super::{
    Maker, Signal,
    batcher::Batcher,
    inference::InferenceWorker,
    learner::Learner,
    rollout::RolloutWorker,
    shared::{DATASETS, Dataset, Lesson, Order, Shared, Tally},
    vector::Outputs,
};
use crate::{
    Error, Result,
    rollout::{Evaluation, Rollout},
    sampling::Sampling,
    signal::{Component, EventLoop, Slot},
};

/// The components, on the loop of whoever gives the orders or each on a thread of its own.
pub(crate) struct Running {
    home: EventLoop<Signal>,
    shared: Arc<Shared>,
    /// The batcher, the inference workers, the rollout workers: nobody hears of an order before those that it will tell.
    components: Vec<Slot<Signal>>,
    /// The rollout workers.
    workers: Vec<Slot<Signal>>,
    learner: Option<Slot<Signal>>,
    threads: Vec<Thread>,
    /// Steps that are collected, and have not come yet.
    missing: usize,
    /// Splits that have not done their share.
    unfinished: usize,
    /// Whether the learner has a lesson.
    learning: bool,
    /// The data set for what was collected last.
    dataset: usize,
}

struct Thread {
    slot: Slot<Signal>,
    handle: JoinHandle<()>,
}

impl Running {
    /// Those that sample, and a learner if it is to learn, too.
    pub(crate) fn start(sampling: &Sampling, maker: &Maker, learns: bool) -> Result<Self> {
        let shared = Arc::new(Shared::new(sampling.clone()));
        let mut loops = Loops::new(sampling.is_serial());
        let sampler = loops.home.slot();
        let batcher = loops.slot("batcher");
        let mut slots =
            |name, number| -> Vec<_> { (0..number).map(|_| loops.slot(name)).collect() };
        let inference = slots("inference", sampling.policy_workers_per_policy);
        let rollout = slots("rollout", sampling.num_workers);
        let learner = learns.then(|| loops.slot("learner"));
        let of =
            |places: &[Place]| -> Vec<_> { places.iter().map(|(slot, _)| slot.clone()).collect() };
        let workers = of(&rollout);

        let outputs = Outputs {
            inference: of(&inference).into(),
            batcher: batcher.0.clone(),
            sampler: sampler.clone(),
        };
        for (worker, place) in rollout.iter().enumerate() {
            let worker = RolloutWorker::new(worker, shared.clone(), maker.clone(), &outputs);
            loops.put(place, worker);
        }
        for place in &inference {
            let worker = InferenceWorker::new(shared.clone(), workers.clone(), sampler.clone());
            loops.put(place, worker);
        }
        let batching = Batcher::new(shared.clone(), workers.clone(), sampler.clone());
        loops.put(&batcher, batching);

        if let Some(place) = &learner {
            let (own, inference) = (place.0.clone(), of(&inference));
            let component = Learner::new(shared.clone(), own, inference, sampler.clone());
            loops.put(place, component);
        }

        let mut running = Self {
            home: loops.home,
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
            let alarm = Alarm {
                name: other.name,
                sampler: sampler.clone(),
            };
            let run = move || {
                let _alarm = alarm;
                other.events.run();
            };
            let builder = Builder::new().name(other.name.to_owned());
            // Without one of them the others are dropped, and end.
            let handle = builder.spawn(run).map_err(Error::Thread)?;
            let slot = slot.clone();
            running.threads.push(Thread { slot, handle });
        }
        Ok(running)
    }

    /// Begins to carry an order out.
    pub(crate) fn begin(&mut self, mut order: Order) {
        self.missing = order.frames();
        self.unfinished = self.shared.sampling.splits();
        if order.collects() && self.learner.is_some() {
            // What was collected before may be learned from meanwhile.
            self.dataset = (self.dataset + 1) % DATASETS;
        }
        order.dataset = self.dataset;
        self.shared.publish(order);
        for component in &self.components {
            component.emit(Signal::Begin);
        }
    }

    /// Begins a lesson, which is learned from a data set.
    pub(crate) fn teach(&mut self, lesson: Lesson, dataset: usize) {
        *self.shared.lesson() = Some(lesson);
        if let Some(learner) = &self.learner {
            self.learning = true;
            learner.emit(Signal::Learn(dataset));
        }
    }

    /// Goes on until all that has begun is done.
    pub(crate) fn finish(&mut self) -> Result<()> {
        while self.missing > 0 || self.unfinished > 0 || self.learning {
            self.hear()?;
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<()> {
        match self.home.hear().ok_or(Error::TaskLeft)? {
            Signal::Dataset(dataset) => self.missing -= self.shared.dataset(dataset).steps(),
            Signal::Passed(block) => {
                let mut dataset = self.shared.dataset(self.dataset);
                self.missing -= dataset.place(&self.shared.block(block));
                drop(dataset);
                let (split, _) = self.shared.owner(block);
                self.workers[self.shared.worker(split)].emit(Signal::Freed(block));
            }
            Signal::Finished(_) => self.unfinished -= 1,
            Signal::Learned => self.learning = false,
            Signal::Failed => return Err(self.shared.failure().unwrap_or(Error::TaskLeft)),
            Signal::Lost(name) => return Err(Error::Panicked(name)),
            _ => {}
        }
        Ok(())
    }

    /// What was collected.
    pub(crate) fn collected(&self) -> Rollout {
        Rollout {
            trajectories: self.shared.dataset(self.dataset).trajectories(),
            returns: self.tally().sorted(),
        }
    }

    /// The data set of what was collected, for a lesson. It stays as it is until the order to collect after the next one.
    pub(crate) fn dataset(&self) -> Dataset {
        Dataset {
            number: self.dataset,
            frames: self.shared.dataset(self.dataset).steps() as u64,
            returns: self.tally().sorted(),
        }
    }

    /// What was evaluated.
    pub(crate) fn evaluated(&self) -> Evaluation {
        let tally = self.tally();
        Evaluation {
            frames: tally.frames,
            returns: tally.sorted(),
        }
    }

    /// What became of the lesson.
    pub(crate) fn learned(&self) -> Option<Lesson> {
        self.shared.lesson().take()
    }

    /// Where the memory of trajectory buffers and data sets is.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> Vec<[(usize, usize); 7]> {
        self.shared.memory()
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for split in 0..self.shared.sampling.splits() {
            tally.add(take(&mut *self.shared.tally(split)));
        }
        tally
    }

    /// How many threads have this name.
    #[cfg(test)]
    pub(crate) fn threads(&self, name: &str) -> usize {
        let names = self.threads.iter().map(|thread| thread.handle.thread());
        names.filter(|thread| thread.name() == Some(name)).count()
    }

    /// Trajectory buffers that somebody has.
    #[cfg(test)]
    pub(crate) fn lent(&self) -> usize {
        self.shared.lent()
    }
}

impl Drop for Running {
    /// Ends the threads, and waits for them.
    fn drop(&mut self) {
        for thread in &self.threads {
            thread.slot.stop();
        }
        for thread in self.threads.drain(..) {
            // That one panicked was told when it did.
            thread.handle.join().ok();
        }
    }
}

/// The loops, while components are put there.
struct Loops {
    home: EventLoop<Signal>,
    serial: bool,
    others: Vec<Other>,
}

struct Other {
    name: &'static str,
    events: EventLoop<Signal>,
}

/// A slot, and which of the other loops it is of; none of home.
type Place = (Slot<Signal>, Option<usize>);

impl Loops {
    fn new(serial: bool) -> Self {
        Self {
            home: EventLoop::default(),
            serial,
            others: Vec::new(),
        }
    }

    fn slot(&mut self, name: &'static str) -> Place {
        if self.serial {
            return (self.home.slot(), None);
        }
        let mut events = EventLoop::default();
        let slot = events.slot();
        self.others.push(Other { name, events });
        (slot, Some(self.others.len() - 1))
    }

    fn put(&mut self, (slot, other): &Place, component: impl Component<Signal> + 'static) {
        let events = match other {
            Some(other) => &mut self.others[*other].events,
            None => &mut self.home,
        };
        events.put(slot, component);
    }
}

/// Tells that its thread panicked.
struct Alarm {
    name: &'static str,
    sampler: Slot<Signal>,
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            self.sampler.emit(Signal::Lost(self.name));
        }
    }
}
