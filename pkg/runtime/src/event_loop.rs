//! Signals between components, and the event loops that components live on.
//!
//! A component is a state machine: it takes a signal, and emits others into the [`Slot`]s that it was given. Two components work the same
//! on one loop, where a signal waits in the queue for its turn, and on the loops of two threads. Signals are small, and carry at most the
//! number of a shared buffer: the data stays where it is.

use std::{
    hint::spin_loop,
    sync::{
        LazyLock,
        mpsc::{Receiver, RecvError, Sender, TryRecvError, channel},
    },
    thread::{available_parallelism, yield_now},
};

/// How often a loop looks for a signal before it lets other threads run, and how often it does that before it sleeps. What is about to come is
/// taken within a microsecond or two: on a core of its own, and where both threads share one.
const SPINS: usize = 20;
const YIELDS: usize = 50;

/// Whether another thread can run while this one looks for its signal.
static SPINNING: LazyLock<bool> =
    LazyLock::new(|| available_parallelism().is_ok_and(|cores| cores.get() > 1));

/// What is told by signals.
pub trait Component<S>: Send {
    /// Takes a signal.
    fn handle_signal(&mut self, signal: S);
}

/// Where the signals of one component go. Those of one emitter arrive in their order.
#[derive(Debug)]
pub struct Slot<S> {
    queue: Sender<Message<S>>,
    place: usize,
}

/// A signal for the component at a place; none ends the loop.
#[derive(Debug)]
struct Message<S> {
    place: usize,
    signal: Option<S>,
}

/// A queue of signals, and the components that take them one after another.
pub struct EventLoop<S> {
    queue: Sender<Message<S>>,
    inbox: Receiver<Message<S>>,
    places: Vec<Option<Box<dyn Component<S>>>>,
}

impl<S> Slot<S> {
    /// Emits a signal. One to a loop that has ended is lost.
    pub fn emit(&self, signal: S) {
        self.send(Some(signal));
    }

    /// Ends the loop, once it has taken what was emitted before.
    pub fn stop(&self) {
        self.send(None);
    }

    fn send(&self, signal: Option<S>) {
        let place = self.place;
        self.queue.send(Message { place, signal }).ok();
    }
}

impl<S> Clone for Slot<S> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            place: self.place,
        }
    }
}

impl<S> Default for EventLoop<S> {
    fn default() -> Self {
        let (queue, inbox) = channel();
        Self {
            queue,
            inbox,
            places: Vec::new(),
        }
    }
}

impl<S> EventLoop<S> {
    /// A slot of this loop. What is emitted into it goes to the component that is put there; without one, to whoever runs the loop.
    pub fn new_slot(&mut self) -> Slot<S> {
        self.places.push(None);
        Slot {
            queue: self.queue.clone(),
            place: self.places.len() - 1,
        }
    }

    /// Puts a component at a slot of this loop.
    pub fn put_component(&mut self, slot: &Slot<S>, component: impl Component<S> + 'static) {
        self.places[slot.place] = Some(Box::new(component));
    }

    /// Runs the components until there is a signal for a slot without one; nothing when the loop was stopped.
    pub fn run_until_signal(&mut self) -> Option<S> {
        loop {
            let Message { place, signal } = self.next_message().ok()?;
            let signal = signal?;
            match &mut self.places[place] {
                Some(component) => component.handle_signal(signal),
                None => return Some(signal),
            }
        }
    }

    /// Runs the components until the loop is stopped.
    pub fn run(mut self) {
        while self.run_until_signal().is_some() {}
    }

    fn next_message(&self) -> Result<Message<S>, RecvError> {
        let (spins, all) = if *SPINNING {
            (SPINS, SPINS + YIELDS)
        } else {
            (0, 0)
        };
        for tried in 0..=all {
            match self.inbox.try_recv() {
                Ok(message) => return Ok(message),
                Err(TryRecvError::Disconnected) => return Err(RecvError),
                Err(TryRecvError::Empty) if tried < spins => spin_loop(),
                Err(TryRecvError::Empty) => yield_now(),
            }
        }
        self.inbox.recv()
    }
}

#[cfg(test)]
mod tests;
