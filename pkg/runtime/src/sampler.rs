//! Where trajectories come from, and where they are learned from: Sample Factory's pipeline inside of one process.
//!
//! Rollout workers step environments, inference workers choose the actions, the batcher makes data sets of what was played, and the learner,
//! where there is one, improves the policy by them. They are [components](crate::event_loop) that tell each other the numbers of [shared
//! buffers](shared), on one event loop or on a thread each:
//!
//! ```text
//!              Begin                         Observed
//!   main_loop ─────────────► rollout worker ──────────────────► inference worker ◄──┐
//!   ▲  ▲  │              │  ▲    │  ▲                            │              │
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
//! Home is the loop of whoever gives the orders: [`Pipeline`], the [`Sampler`] of a collector, or the runner of a training in one process
//! ([`serial`](crate::serial)). With batched sampling the batcher passes buffers on to it as they are, and it puts them into the data set.
//!
//! Each environment has a generator of its own for all that is random, its actions too, and its own share of the work. So what is sampled
//! does not depend on which thread did what when.

mod batcher;
mod trajectory_buffer;
mod inference_worker;
mod learner;
mod pipeline;
mod env_instance;
mod env_runner;
mod rollout_worker;
mod running_pipeline;
mod shared_buffers;
mod vector_runner;

use std::sync::Arc;

use rand::rngs::StdRng;

pub use pipeline::Pipeline;
pub use env_instance::{EnvInstance, gymnasium_factory};
pub(crate) use running_pipeline::RunningPipeline;
pub(crate) use shared_buffers::{Dataset, TrainingBatch, Order};

use crate::{
    Result,
    game::Game,
    policy::Policy,
    rollout::{Evaluation, Rollout},
};

/// What trajectories come from.
pub trait Sampler: Send {
    /// Plays with drawn actions until there are `frames` steps.
    fn collect(&mut self, policy: &Policy, frames: usize, seed: u64) -> Result<Rollout>;

    /// Plays whole episodes with the likelier actions.
    fn evaluate(&mut self, policy: &Policy, episodes: usize, seed: u64) -> Result<Evaluation>;

    /// Nothing is asked of it for a while: it may give up what it holds.
    fn stop_workers(&mut self) {}
}

/// Makes an environment in which an episode begins.
pub type EnvFactory = Arc<dyn Fn(Game, &mut StdRng) -> Box<dyn EnvInstance> + Send + Sync>;

/// What components tell each other; a number is that of a split, of a buffer or of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    /// There is an order.
    Begin,
    /// A split's observations wait for actions.
    Observed(usize),
    /// They have them.
    Acted(usize),
    /// A trajectory buffer holds steps.
    Filled(usize),
    /// A trajectory buffer is to be read as it is.
    Passed(usize),
    /// A data set is whole.
    Dataset(usize),
    /// A trajectory buffer may be filled again.
    Freed(usize),
    /// A split has done its share of the order.
    Finished(usize),
    /// There is a lesson, for that data set.
    Learn(usize),
    /// It is time for the next gradient step.
    Step,
    /// That buffer holds newer weights.
    Published(usize),
    /// All is learned.
    Learned,
    /// A component cannot do its part.
    Failed,
    /// A component panicked, and its thread is lost.
    Lost(&'static str),
}

/// What one of several has to do, the first ones the most.
const fn share_of(total: usize, parts: usize, part: usize) -> usize {
    total / parts + (part < total % parts) as usize
}

#[cfg(test)]
mod tests;
