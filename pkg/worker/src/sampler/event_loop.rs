//! Event loops, their components, and the signals between them.
//!
//! A component is a state machine: it handles a signal and emits others into its [`Slot`]s. Two
//! components work the same on one loop, where signals wait in a queue, and on the loops of two
//! threads. A signal is small and contains at most the number of a shared buffer; data is not
//! copied.

use std::{
    hint::spin_loop,
    sync::{
        LazyLock,
        mpsc::{Receiver, RecvError, Sender, TryRecvError, channel},
    },
    thread::{available_parallelism, yield_now},
};

/// Number of busy polls and of yields before a loop sleeps. A signal that is about to arrive is
/// received within two microseconds.
const SPINS: usize = 20;
const YIELDS: usize = 50;

/// Whether another thread can run during busy polls.
static SPINNING: LazyLock<bool> =
    LazyLock::new(|| available_parallelism().is_ok_and(|cores| cores.get() > 1));

/// A receiver of signals.
pub trait Component<S>: Send {
    /// Handles a signal.
    fn handle_signal(&mut self, signal: S);
}

/// The sender of signals to one component. Signals of one emitter keep their order.
#[derive(Debug)]
pub struct Slot<S> {
    queue: Sender<Message<S>>,
    place: usize,
}

/// A signal for the component at a place; no signal ends the loop.
#[derive(Debug)]
struct Message<S> {
    place: usize,
    signal: Option<S>,
}

/// A queue of signals and the components that handle them in order.
pub struct EventLoop<S> {
    queue: Sender<Message<S>>,
    inbox: Receiver<Message<S>>,
    places: Vec<Option<Box<dyn Component<S>>>>,
}

impl<S> Slot<S> {
    /// Emits a signal; it is lost if the loop has ended.
    pub fn emit(&self, signal: S) {
        self.send(Some(signal));
    }

    /// Ends the loop after the signals that were emitted before.
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
    /// A slot of this loop. Its signals are sent to its component, or without one to the caller of
    /// the loop.
    pub fn new_slot(&mut self) -> Slot<S> {
        self.places.push(None);
        Slot {
            queue: self.queue.clone(),
            place: self.places.len() - 1,
        }
    }

    /// Sets the component of a slot of this loop.
    pub fn put_component(&mut self, slot: &Slot<S>, component: impl Component<S> + 'static) {
        self.places[slot.place] = Some(Box::new(component));
    }

    /// Runs the components until a slot without a component gets a signal; none when the loop was
    /// stopped.
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
