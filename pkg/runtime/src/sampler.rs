//! The sampler: Sample Factory's asynchronous pipeline (APPO) in one process.
//!
//! Rollout workers step environments, inference workers choose the actions, the batcher builds data
//! sets, and the learner, if there is one, improves the policy. They are
//! [components](crate::event_loop) that send each other the numbers of [shared
//! buffers](shared_buffers), on one event loop or on one thread each:
//!
//! ```text
//!              Begin                         Observed
//!   main ─────────────► rollout worker ──────────────────► inference worker ◄──┐
//!   loop  │              │  ▲    │  ▲                            │              │
//!   │  │  │  Finished    │  │    │  └────────────────────────────┘              │ Published, after
//!   │  ├──│──────────────┘  │    │ Filled        Acted                          │ each gradient step
//!   │  │  │                 │    ▼                                              │
//!   │  └──│───────────────── batcher, of a data set: Dataset; of buffers        │
//!   │     │                  that may be filled again: Freed                    │
//!   │     │ Learn                                                               │
//!   │     └────────────► learner ───────────────────────────────────────────────┘
//!   └─────────────────────┘ Learned
//! ```
//!
//! The main loop belongs to the caller: [`Pipeline`], the [`Sampler`] of a collector, or the runner
//! of a serial training ([`serial`](crate::serial)). With batched sampling the batcher forwards
//! buffers unchanged, and the main loop copies them into the data set.
//!
//! Each environment has its own random number generator and its own share of the work. So the
//! samples do not depend on the scheduling of threads. See docs/decisions/0020.

mod batcher;
mod env_instance;
mod env_runner;
mod inference_worker;
mod learner;
mod pipeline;
mod rollout_worker;
mod running_pipeline;
mod shared_buffers;
mod trajectory_buffer;
mod vector_runner;

use std::sync::Arc;

use rand::rngs::StdRng;

pub use env_instance::{EnvInstance, gymnasium_factory};
pub use pipeline::Pipeline;
pub(crate) use running_pipeline::RunningPipeline;
pub(crate) use shared_buffers::{Dataset, Order, TrainingBatch};

use crate::{
    Result,
    game::Game,
    policy::Policy,
    rollout::{Evaluation, Rollout},
};

/// A source of trajectories.
pub trait Sampler: Send {
    /// Samples `frames` steps with drawn actions.
    fn collect(&mut self, policy: &Policy, frames: usize, seed: u64) -> Result<Rollout>;

    /// Plays whole episodes with the most likely actions.
    fn evaluate(&mut self, policy: &Policy, episodes: usize, seed: u64) -> Result<Evaluation>;

    /// Releases threads and memory; the next call starts them again.
    fn stop_workers(&mut self) {}
}

/// Creates an environment in which an episode begins.
pub type EnvFactory = Arc<dyn Fn(Game, &mut StdRng) -> Box<dyn EnvInstance> + Send + Sync>;

/// The signals between components. A number is that of a split, a buffer or a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    /// An order is published.
    Begin,
    /// The observations of a split wait for actions.
    Observed(usize),
    /// The actions of a split are chosen.
    Acted(usize),
    /// A trajectory buffer is full.
    Filled(usize),
    /// A trajectory buffer is forwarded unchanged.
    Passed(usize),
    /// A data set is complete.
    Dataset(usize),
    /// A trajectory buffer is free.
    Freed(usize),
    /// A split has finished its share of the order.
    Finished(usize),
    /// A training batch for this data set is published.
    Learn(usize),
    /// The next gradient step is due.
    Step,
    /// This buffer contains newer weights.
    Published(usize),
    /// The training batch is done.
    Learned,
    /// A component failed.
    Failed,
    /// A component panicked; its thread has ended.
    Lost(&'static str),
}

/// The share of one part of a total; the first parts get the remainder.
const fn share_of(total: usize, parts: usize, part: usize) -> usize {
    total / parts + (part < total % parts) as usize
}

#[cfg(test)]
mod tests;
