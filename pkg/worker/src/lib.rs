//! The library of di-worker: reinforcement learning by three roles that share a storage. See
//! docs/decisions/0029 for what it leaves out.
//!
//! | Folder | Subject |
//! |---|---|
//! | [`environment`] | The environment and its episodes |
//! | [`model`] | Actor, critic and optimiser state, and their file |
//! | [`sampler`] | Rollout workers, inference workers, batcher; the collector that serves them |
//! | [`learner`] | PPO; the learner that serves it |
//! | [`distributed`] | A learner of several GPUs: rendezvous, process group, aggregator |
//! | [`lifecycle`] | Configure, start, pause and exit of all workers |
//! | [`storage`] | The folder that all pods share, and its files |
//! | [`checkpoint`] | Checkpoints, the folder of a run |
//! | [`coordinator`] | The training loop, its replicas and their control panel; training in one process |
//! | [`protocol`] | Tasks and reports over HTTP, environment variables, signals |
//!
//! The result of a task depends only on the task, not on the replica that runs it. A seed gives the
//! same training with one collector or with five, also if collectors are lost. Only the number of
//! environments per collector must be the same in all collectors.
#![allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

pub mod checkpoint;
pub mod coordinator;
pub mod distributed;
pub mod environment;
mod error;
pub mod learner;
pub mod lifecycle;
pub mod model;
pub mod protocol;
pub mod sampler;
pub mod storage;

pub use error::{Error, Result, chain};
