use std::{
    sync::Arc,
    thread::{self, Builder, JoinHandle},
};

use super::{
    Maker, Signal,
    batcher::Batcher,
    block::Played,
    inference::InferenceWorker,
    rollout::RolloutWorker,
    runner::Outputs,
    shared::{Order, Shared, Tally},
};
use crate::{
    Error, Result,
    sampling::Sampling,
    signal::{Component, EventLoop, Slot},
};

/// The components, on the loop of whoever gives the orders or each on a thread of its own.
pub(super) struct Running {
    home: EventLoop<Signal>,
    shared: Arc<Shared>,
    /// The batcher, the inference workers, the rollout workers: nobody hears of an order before those that it will tell.
    components: Vec<Slot<Signal>>,
    /// The rollout workers.
    workers: Vec<Slot<Signal>>,
    threads: Vec<Thread>,
}

struct Thread {
    slot: Slot<Signal>,
    handle: JoinHandle<()>,
}

impl Running {
    pub(super) fn start(sampling: &Sampling, maker: &Maker) -> Result<Self> {
        let shared = Arc::new(Shared::new(sampling.clone()));
        let mut loops = Loops::new(sampling.is_serial());
        let sampler = loops.home.slot();
        let batcher = loops.slot("batcher");
        let mut slots =
            |name, number| -> Vec<_> { (0..number).map(|_| loops.slot(name)).collect() };
        let inference = slots("inference", sampling.policy_workers_per_policy);
        let rollout = slots("rollout", sampling.num_workers);
        let workers: Vec<_> = rollout.iter().map(|(slot, _)| slot.clone()).collect();

        for (worker, place) in rollout.iter().enumerate() {
            let outputs = Outputs {
                inference: inference[worker % inference.len()].0.clone(),
                batcher: batcher.0.clone(),
                sampler: sampler.clone(),
            };
            let worker = RolloutWorker::new(worker, shared.clone(), maker.clone(), &outputs);
            loops.put(place, worker);
        }
        for place in &inference {
            let worker = InferenceWorker::new(shared.clone(), workers.clone(), sampler.clone());
            loops.put(place, worker);
        }
        let batching = Batcher::new(shared.clone(), workers.clone(), sampler.clone());
        loops.put(&batcher, batching);

        let all = [vec![batcher], inference, rollout].concat();
        let mut running = Self {
            home: loops.home,
            shared,
            components: all.into_iter().map(|(slot, _)| slot).collect(),
            workers,
            threads: Vec::new(),
        };
        for (other, slot) in loops.others.into_iter().zip(&running.components) {
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

    /// Carries an order out.
    pub(super) fn run(&mut self, order: Order) -> Result<(Vec<Played>, Tally)> {
        let splits = self.shared.sampling.splits();
        let mut missing = order.frames();
        let mut finished = 0;
        let mut played = vec![Played::default(); self.shared.sampling.environments()];
        self.shared.publish(order);
        for component in &self.components {
            component.emit(Signal::Begin);
        }
        while missing > 0 || finished < splits {
            match self.home.hear().ok_or(Error::TaskLeft)? {
                Signal::Dataset(None) => missing -= self.shared.dataset().hand_out(&mut played),
                Signal::Dataset(Some(block)) => {
                    missing -= self.shared.block(block).hand_out(&mut played);
                    let (split, _) = self.shared.owner(block);
                    self.workers[self.shared.worker(split)].emit(Signal::Freed(block));
                }
                Signal::Finished(_) => finished += 1,
                Signal::Failed => {
                    return Err(self.shared.failure().take().unwrap_or(Error::TaskLeft));
                }
                Signal::Lost(name) => return Err(Error::Panicked(name)),
                _ => {}
            }
        }
        let mut tally = Tally::default();
        for split in 0..splits {
            tally.add(std::mem::take(&mut *self.shared.tally(split)));
        }
        Ok((played, tally))
    }

    /// Trajectory buffers that somebody has.
    #[cfg(test)]
    pub(super) fn lent(&self) -> usize {
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
