//! The sampler: Sample Factory's asynchronous pipeline (APPO) in one process.
//!
//! Rollout workers step environments, inference workers choose the actions, the batcher builds data
//! sets, and the learner, if there is one, improves the policy. They are
//! [components](crate::sampler::event_loop) that send each other the numbers of [shared
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
//! The main loop belongs to the caller: [`Pipeline`], which a collector uses, or the runner
//! of a serial training ([`serial`](crate::coordinator::serial)). With batched sampling the batcher forwards
//! buffers unchanged, and the main loop copies them into the data set.
//!
//! Each environment has its own random number generator and its own share of the work. So the
//! samples do not depend on the scheduling of threads. See docs/decisions/0020.

mod action_choice;
mod batcher;
pub mod collector;
mod env_runner;
pub mod event_loop;
mod inference_worker;
mod learner;
pub(crate) mod pipeline;
pub mod rollout;
mod rollout_worker;
pub(crate) mod running_pipeline;
pub mod sampling;
pub(crate) mod shared_buffers;
mod signal;
mod trajectory_buffer;
mod vector_runner;

pub use pipeline::Pipeline;

#[cfg(test)]
mod tests;
